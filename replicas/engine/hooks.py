"""Wrappers around methods of an object, several at once. No I/O, no clock."""

from collections.abc import Callable, Mapping
from typing import Any

from controller.fail_open import Guard

Around = Callable[[Any], Any]
"""Takes a method and returns its wrapper."""
CHAINS = "brimful_hooks"


def hook(target: Any, arounds: Mapping[str, Around]) -> Callable[[], None]:
    """Wrap methods of an object, outside of the wrappers that are there.

    Returns:
        Removes these wrappers, in any order with others; the last removal leaves the object as
        it was.
    """
    chains: dict[str, list[Any]] = vars(target).setdefault(CHAINS, {})
    for name, around in arounds.items():
        chains.setdefault(name, [vars(target).get(name)]).append(around)
        _stack(target, name, chains[name])

    def unhook() -> None:
        for name, around in arounds.items():
            chains[name].remove(around)
            _stack(target, name, chains[name])
            if len(chains[name]) == 1:
                del chains[name]
        if not chains and vars(target).get(CHAINS) is chains:
            delattr(target, CHAINS)

    return unhook


def beside(
    guard: Guard,
    what: str,
    before: Callable[[Any], None] | None = None,
    after: Callable[[Any], None] | None = None,
) -> Around:
    """Code of ours around a method of vLLM's, which does not fail if the code does.

    Args:
        what: name of the code, for logs.
        before: takes the method's first argument.
        after: takes what the method returned.
    """

    def around(inner: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if before is not None:
                guard.attempt(what, before, args[0])
            result = inner(*args, **kwargs)
            if after is not None:
                guard.attempt(what, after, result)
            return result

        return call

    return around


def take_back(target: Any, cls: type) -> None:
    """Restore the methods that an object would have without ``cls``; overridden ones stay."""
    plain = super(cls, target)
    for name, method in vars(cls).items():
        if callable(method) and getattr(type(target), name) is method and hasattr(plain, name):
            setattr(target, name, getattr(plain, name))


def _stack(target: Any, name: str, chain: list[Any]) -> None:
    """Put a method's wrappers in place; a chain begins with the object's own attribute or None."""
    own, *arounds = chain
    vars(target).pop(name, None)
    method = getattr(target, name) if own is None else own
    for around in arounds:
        method = around(method)
    if chain != [None]:
        setattr(target, name, method)
