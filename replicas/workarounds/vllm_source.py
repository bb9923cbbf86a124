"""What is where in a vLLM that is not imported: its source is read, and nothing of it runs."""

import ast
import re
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path


class VllmSource:
    """The source of one version.

    Args:
        folder: the package itself, which holds ``__init__.py``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tree = cache(self._parsed)
        self._names = cache(self._top_level)
        self._attributes = cache(self._attributes_of)

    def has(self, thing: str) -> bool:
        """Whether a module, a name in one, or an attribute of a class is there.

        Args:
            thing: as ``vllm.v1.request:Request.status``; an attribute is what the body of a class
                names, or a method sets, of its bases too.
        """
        module, _, dotted = thing.partition(":")
        if not dotted:
            return self._path(module) is not None
        name, *attributes = dotted.split(".")
        found = self._find(module, name)
        if found is None:
            return False
        if not attributes:
            return True
        module, node = found
        return isinstance(node, ast.ClassDef) and attributes[0] in self._attributes(module, node)

    def elsewhere(self, thing: str) -> str | None:
        """The module that defines the thing's name now; None: none does, or several do."""
        module, _, dotted = thing.partition(":")
        name = dotted.split(".")[0] or module.rpartition(".")[2]
        found = self._definitions.get(name, set()) - {module}
        if not dotted:  # a module goes by its file's name
            found = {one for one in self._modules if one.rpartition(".")[2] == name}
        return found.pop() if len(found) == 1 else None

    def _path(self, module: str) -> Path | None:
        at = self._folder.joinpath(*module.split(".")[1:])
        for path in (at.with_suffix(".py"), at / "__init__.py"):
            if path.is_file():
                return path
        return None

    def _parsed(self, module: str) -> ast.Module | None:
        path = self._path(module)
        return None if path is None else ast.parse(path.read_text(encoding="utf-8"))

    def _top_level(self, module: str) -> dict[str, ast.AST]:
        tree = self._tree(module)
        return {} if tree is None else dict(_named(tree.body))

    def _find(self, module: str, name: str) -> tuple[str, ast.AST] | None:
        """Where a name that a module has is defined, and how."""
        seen = set()
        while (module, name) not in seen:
            seen.add((module, name))
            node = self._names(module).get(name)
            if node is None:
                if self._path(f"{module}.{name}"):
                    return f"{module}.{name}", ast.Module([], [])
                return (module, ast.Constant(name)) if self._lazily(module, name) else None
            if not isinstance(node, ast.ImportFrom):
                return module, node
            alias = next(one for one in node.names if (one.asname or one.name) == name)
            source = self._absolute(module, node)
            if not source.startswith("vllm") or self._path(source) is None:
                return module, node
            module, name = source, alias.name
        return None

    def _absolute(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        path = self._path(module)
        package = module.split(".")
        up = node.level - (path is not None and path.name == "__init__.py")
        return ".".join([*package[: len(package) - up], *filter(None, [node.module])])

    def _lazily(self, module: str, name: str) -> bool:
        """Whether a module whose names come with their first use has one of them as a string."""
        tree = self._tree(module)
        if tree is None or "__getattr__" not in self._names(module):
            return False
        return any(isinstance(n, ast.Constant) and n.value == name for n in ast.walk(tree))

    def _attributes_of(self, module: str, node: ast.ClassDef) -> set[str]:
        found = {name for name, _ in _named(node.body)}
        for inner in ast.walk(node):
            match inner:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    found.add(name)
        for base in node.bases:
            at = self._find(module, base.id) if isinstance(base, ast.Name) else None
            if at is not None and isinstance(at[1], ast.ClassDef):
                found |= self._attributes(at[0], at[1])
        return found

    @cached_property
    def _modules(self) -> list[str]:
        parts = (path.relative_to(self._folder) for path in self._folder.rglob("*.py"))
        return [
            ".".join(("vllm", *path.with_suffix("").parts)).removesuffix(".__init__")
            for path in parts
        ]

    @cached_property
    def _definitions(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for module in self._modules:
            path = self._path(module)
            text = path.read_text(encoding="utf-8") if path else ""
            for name in re.findall(r"^(?:async )?(?:class|def) (\w+)", text, re.MULTILINE):
                found.setdefault(name, set()).add(module)
        return found


def _named(body: list[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    """Names that a body defines, imports or sets, and by what."""
    for node in body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node
            case ast.ImportFrom() | ast.Import():
                yield from ((one.asname or one.name.split(".")[0], node) for one in node.names)
            case ast.Assign():
                for target in node.targets:
                    yield from ((n.id, node) for n in ast.walk(target) if isinstance(n, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node
            case ast.If() | ast.Try() | ast.With():
                for part in ("body", "orelse", "finalbody"):
                    yield from _named(getattr(node, part, []))
                for handler in getattr(node, "handlers", []):
                    yield from _named(handler.body)
