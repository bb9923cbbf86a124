"""What is changed: mutmut's operators, on every line of a module that runs.

mutmut's own runner switches between copies of a function, so it leaves out constants, class bodies
and whatever has a decorator, which is half of what matters in a controller. Here its operators are
asked of the whole module, and a mutant is the module's source with one node replaced.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper, PositionProvider
from mutmut.mutation.file_mutation import OuterFunctionProvider
from mutmut.mutation.mutators import (
    mutation_operators,
    operator_arg_removal,
    operator_assignment,
    operator_string,
)

# None for a value, or for an argument, nearly always raises at once: such mutants would only make
# the share look better. Strings here are names and texts, which mypy and readers check.
_TRIVIAL = (operator_arg_removal, operator_assignment, operator_string)


def _half(node: cst.Float) -> Iterator[cst.Float]:
    """mutmut adds one to every number, which is far off for a share or a weight."""
    if node.evaluated_value:
        yield node.with_changes(value=repr(node.evaluated_value / 2))


OPERATORS = [
    *((kind, operator) for kind, operator in mutation_operators if operator not in _TRIVIAL),
    (cst.Float, _half),
]


@dataclass(frozen=True)
class Mutant:
    """One change of one module.

    Args:
        file: the module's path in the repository.
        line, last_line: of what is changed, from 1.
        function: first and last line of the function around it; None: it runs at import.
        before, after: the lines that differ, joined.
        source: the whole module with the change.
    """

    file: str
    line: int
    last_line: int
    function: tuple[int, int] | None
    before: str
    after: str
    source: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The same wherever its line moves to."""
        return self.file, self.before, self.after


class _Visitor(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider, OuterFunctionProvider)

    def __init__(self) -> None:
        self.found: list[tuple[cst.CSTNode, cst.CSTNode, cst.CSTNode | None]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _means_nothing(node):
            return False
        outer = self.get_metadata(OuterFunctionProvider, node, None)
        for kind, operator in OPERATORS:
            if isinstance(node, kind):
                self.found += [(node, changed, outer) for changed in operator(node)]
        return True


def _means_nothing(node: cst.CSTNode) -> bool:
    """Whether nothing in it changes what the module does: types, decorators, imports, ``strict``.

    ``zip(strict=True)`` guards against a fault of the program itself.
    """
    if isinstance(node, cst.Annotation | cst.Decorator | cst.Import | cst.ImportFrom):
        return True
    if isinstance(node, cst.Arg) and node.keyword is not None and node.keyword.value == "strict":
        return True
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
        return node.func.value in ("len", "isinstance", "TypeVar")
    return False


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """Every mutant of the module at ``path``, in the order of its lines."""
    code = path.read_bytes()
    wrapper = MetadataWrapper(cst.parse_module(code), unsafe_skip_copy=True)
    visitor = _Visitor()
    wrapper.visit(visitor)
    positions, spans = wrapper.resolve(PositionProvider), wrapper.resolve(ByteSpanPositionProvider)
    file, old = path.relative_to(root).as_posix(), code.decode().splitlines()
    mutants = {}
    for node, changed, outer in visitor.found:
        # Put in as text: to write the whole tree anew takes a hundred times as long.
        start, end = spans[node].start, spans[node].start + spans[node].length
        if wrapper.module.code_for_node(node).encode() == code[start:end]:
            put_in = wrapper.module.code_for_node(changed).encode()
            source = (code[:start] + put_in + code[end:]).decode()
        else:
            source = wrapper.module.deep_replace(node, changed).code
        if not _compiles(source):
            continue
        at = positions[node]
        function = None
        if isinstance(outer, cst.FunctionDef):
            function = positions[outer].start.line, positions[outer].end.line
        before, after = _difference(old, source.splitlines())
        mutant = Mutant(file, at.start.line, at.end.line, function, before, after, source)
        mutants[at.start.line, before, after] = mutant
    return list(mutants.values())


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _difference(old: list[str], new: list[str]) -> tuple[str, str]:
    """The lines of each that are not in the other, without what is at both ends of both."""
    first = next((k for k, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    joined = (" ".join(s.strip() for s in x[first : len(x) - last]) for x in (old, new))
    before, after = joined
    return before, after
