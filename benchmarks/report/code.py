"""What a run stands on: the modules of this project that it imports, and a digest of them."""

import ast
import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path

from benchmarks.report.document import ROOT


def imported_by(
    names: Iterable[str],
    without: str | None = None,
    closed: Collection[str] = (),
    root: Path = ROOT,
) -> list[Path]:
    """The files of these modules, and of all below ``root`` that they import, wherever they do.

    Args:
        without: a package that is left out, with what only it imports.
        closed: modules whose own imports are not followed.
    """
    found: dict[str, Path] = {}
    asked = list(names)
    while asked:
        name = asked.pop()
        path = _file(name, root)
        if path is None or name in found or name.partition(".")[0] == without:
            continue
        found[name] = path
        if name in closed:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                asked += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                asked += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return sorted(found.values())


def _file(name: str, root: Path) -> Path | None:
    path = root.joinpath(*name.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def digest(paths: Iterable[Path], more: str = "") -> str:
    """Eight hex digits of what stands in these files, and of ``more``."""
    whole = hashlib.sha256(more.encode())
    for path in paths:
        whole.update(f"\0{path.name}\0".encode())
        whole.update(path.read_bytes())
    return whole.hexdigest()[:8]
