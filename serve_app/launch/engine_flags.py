"""vLLM's own flags as ``engine_kwargs``: names, types and shorthands are those of its parser."""

import argparse
import enum
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from controller.errors import ConfigError
from controller.validation import nearest
from replicas.server.startup import gc_paused

# What this command says in other words.
OTHERWISE = {
    "model": "the model is the first argument",
    "config": "pass FILE, a Serve config, instead of a model",
    "host": "it is a flag of ours, before vLLM's",
    "port": "it is a flag of ours, before vLLM's",
    "served_model_name": "one name is taken",
}
PLAIN = (bool, int, float, str, type(None))
_UNSET = object()


def engine_kwargs(flags: Sequence[str], ours: Iterable[str] = ()) -> dict[str, Any]:
    """The engine arguments of these flags of ``vllm serve``, as YAML can hold them.

    Args:
        ours: flags of the command itself, which a misspelt one may mean.

    Raises:
        ConfigError: a flag is unknown (the nearest one is named) or has a wrong value.
    """
    if not flags:
        return {}
    parser = _parser()
    known = {name for name in parser._option_string_actions if name.startswith("--")}
    _refuse_unknown(flags, known, {*known, *ours})
    given = argparse.Namespace(**{action.dest: _UNSET for action in parser._actions})
    values = vars(parser.parse_args(list(flags), given))
    found = {key: plain(value) for key, value in values.items() if value is not _UNSET}
    if wrong := [f"--{_dashed(key)}: {OTHERWISE[key]}" for key in found if key in OTHERWISE]:
        raise ConfigError(wrong)
    return found


def _refuse_unknown(flags: Sequence[str], known: set[str], allowed: set[str]) -> None:
    wrong = []
    for flag in flags:
        if not flag.startswith("--"):
            continue
        name = _dashed(flag.partition("=")[0].partition(".")[0])
        if name not in known:
            wrong.append(f"{name}: no flag of this command or of vLLM's; {nearest(name, allowed)}")
    if wrong:
        raise ConfigError(wrong)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


class _AsWritten:
    """What a flag takes, as it was written if vLLM makes it an object."""

    def __init__(self, kind: Callable[[str], Any]) -> None:
        self._kind = kind
        self.__name__ = getattr(kind, "__name__", "value")  # for argparse's messages

    def __call__(self, text: str) -> Any:
        value = self._kind(text)
        return json.loads(text) if _is_object(value) else value


def _is_object(value: Any) -> bool:
    return not isinstance(value, (*PLAIN, enum.Enum, list, tuple, set, Mapping))


def plain(value: Any) -> Any:
    """A value without enumerations, tuples and sets."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, set):
        return sorted(map(plain, value))
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    return value


def _parser() -> argparse.ArgumentParser:
    with gc_paused():
        from ray.llm._internal.serve.engines.vllm.vllm_models import AsyncEngineArgs, FrontendArgs
        from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise ConfigError([f"vLLM: {message}"])

    parser: argparse.ArgumentParser = Parser(add_help=False)
    AsyncEngineArgs.add_cli_args(parser)
    FrontendArgs.add_cli_args(parser)
    for action in parser._actions:
        if callable(action.type):
            action.type = _AsWritten(action.type)
    return parser
