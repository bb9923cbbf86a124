"""The base package brings what the scheduler needs beside vLLM, and no Ray."""

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = ("controller", "replicas", "configs")
NAMES = {"pyyaml": "yaml"}


def imports(path: Path) -> set[str]:
    """Every module that a file names, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def file_of(module: str) -> Path | None:
    path = ROOT / module.replace(".", "/")
    found = (path.with_suffix(".py"), path / "__init__.py")
    return next((one for one in found if one.exists()), None)


def test_the_scheduler_imports_what_the_base_package_brings() -> None:
    seen, todo, others = set(), {"replicas.scheduler"}, set()
    while todo:
        module = todo.pop()
        seen.add(module)
        path = file_of(module)
        for name in imports(path) if path else ():
            top = name.partition(".")[0]
            if top in OURS:
                todo |= {name} - seen
            elif top not in sys.stdlib_module_names:
                others.add(top)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = {re.split(r"[>=<\[]", one)[0] for one in project["dependencies"]}
    assert others == {NAMES.get(one, one) for one in base} | {"vllm"}
