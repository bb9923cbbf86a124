"""``python -m tools.modules``: docs/modules.md, every module with the first lines of its docstring.

Written by this command alone, so that a merge is settled by running it again.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "modules.md"
PACKAGES = ("controller", "replicas", "serve_app", "simulator", "benchmarks", "tools")
HEAD = """# Modules

Made from the first lines of each module's docstring by `python -m tools.modules`. What each \
folder is for: [structure.md](structure.md)."""


def folders() -> dict[str, list[Path]]:
    """The modules of every folder, both in the order of their names; a package is no module."""
    found: dict[str, list[Path]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name != "__init__.py":
                found[path.parent.relative_to(ROOT).as_posix()].append(path)
    return dict(sorted(found.items()))


def first_lines(path: Path) -> str:
    """The first paragraph of a module's docstring, in one line.

    Raises:
        ValueError: the module has no docstring.
    """
    text = ast.get_docstring(ast.parse(path.read_text()))
    if not text:
        raise ValueError(f"{path.relative_to(ROOT)}: a module begins with what it is")
    return " ".join(text.partition("\n\n")[0].split())


def page() -> str:
    """docs/modules.md as the code has it."""
    return "\n\n".join([HEAD, *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    for folder, paths in folders().items():
        lines = [f"- `{path.stem}`: {first_lines(path)}" for path in paths]
        yield "\n".join([f"## {folder}/", "", *lines])


def main() -> None:
    """Write the page anew."""
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
