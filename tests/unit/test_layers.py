"""Folders know each other in one direction only, so that none is read or changed in a circle."""

import ast
from collections import defaultdict
from pathlib import Path

REPO = Path(__file__).parents[2]
# A folder may import from those before it; its subfolders are folders of their own.
LAYERS = (
    "configs",
    "controller/models",
    "controller",
    "controller/law",
    "controller/policies",
    "controller/fleet",
    "replicas/admission",
    "replicas/door",
    "replicas/profiles",
    "replicas/workarounds",
    "replicas/engine",
    "replicas/server",
    "replicas/emulator",
    "replicas",
    "serve_app/routing",
    "serve_app/scaling",
    "serve_app",
    "serve_app/planning",
    "serve_app/console",
    "serve_app/batches",
    "serve_app/checks",
    "serve_app/apply",
    "serve_app/launch",
    "simulator/workloads",
    "simulator/virtual",
    "simulator/replay",
    "simulator/fleet",
    "simulator/plan",
    "serve_app/demo",
    "benchmarks/report",
    "benchmarks/baselines",
    "benchmarks/live",
    "benchmarks/fleet/rivals",
    "benchmarks/fleet",
    "benchmarks/contests",
    "benchmarks/pd",
    "benchmarks/path",
    "benchmarks/overload",
    "benchmarks/faults",
    "benchmarks/cost",
    "benchmarks/papers",
    "benchmarks/gpu",
    "benchmarks",
)
PACKAGES = sorted({layer.partition("/")[0] for layer in LAYERS})


def modules() -> dict[str, Path]:
    """Every module of the packages, by its dotted name; a package is its ``__init__``."""
    paths = [path for package in PACKAGES for path in (REPO / package).rglob("*.py")]
    return {_dotted(path.relative_to(REPO)): path for path in paths}


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that ``path`` imports, wherever the import stands in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & known.keys() or {node.module}
    return found & known.keys()


def edges() -> dict[tuple[str, str], set[str]]:
    """From one folder to another: the imports behind it."""
    known = modules()
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, path in known.items():
        for other in imported(path, known):
            ends = folder(path), folder(known[other])
            if ends[0] != ends[1]:
                found[ends].add(f"{name} imports {other}")
    return found


def folder(path: Path) -> str:
    return path.parent.relative_to(REPO).as_posix()


def test_every_folder_has_its_layer() -> None:
    empty = {"simulator"}  # nothing but folders in it
    assert {folder(path) for path in modules().values()} == {*LAYERS, *empty}


def test_no_import_goes_against_the_layers() -> None:
    wrong = [
        reason
        for (knows, known), reasons in edges().items()
        if LAYERS.index(knows) <= LAYERS.index(known)
        for reason in sorted(reasons)
    ]
    assert wrong == []
