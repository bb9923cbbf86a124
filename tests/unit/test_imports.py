"""What is light enough to start at once, and where Ray and vLLM may be imported."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
HEAVY = ("ray", "vllm", "torch", "transformers")
PURE = sorted(
    path.relative_to(REPO).with_suffix("").as_posix().replace("/", ".")
    for path in (REPO / "controller").rglob("*.py")
    if path.name not in ("__init__.py", "actor.py")
)
LIGHT = [
    "replicas.admission.admission",
    "replicas.door.http",
    "replicas.server.autoscaling_stats",
    "replicas.server.routing_stats",
    "replicas.engine.governor",
    "replicas.engine.channel",
    "replicas.workarounds.core_process",
    "replicas.engine.executor",
    "replicas.server.otlp",
    "replicas.engine.step_recorder",
    "replicas.server.minute",
    "replicas.engine.settings",
    "replicas.server.startup",
    "replicas.profiles.profile_file",
    "serve_app",
    "serve_app.cli",
    "serve_app.planning.roofline",
    "simulator.plan.command",
    "serve_app.scaling.decide",
    "serve_app.config",
    "serve_app.routing.settings",
    "serve_app.apply.command",
    "serve_app.checks.command",
    "serve_app.enforce",
    "serve_app.record",
    "serve_app.status",
    "serve_app.explain",
    "serve_app.console",
    "serve_app.console.app",
]
MAY_IMPORT_RAY = {
    "replicas/server/vllm_engine.py",
    "replicas/server/plain_calls.py",
    "replicas/workarounds/plain_errors.py",
    "replicas/server/stream_ends.py",
    "replicas/server/answer_clocks.py",
    "controller/fleet/actor.py",
    "replicas/server/model_files.py",
    "replicas/server/control_link.py",
    "replicas/server/peers.py",
    "replicas/server/app.py",
    "replicas/server/server.py",
    "replicas/server/pd_server.py",
    "replicas/emulator/emulated_server.py",
    "replicas/server/metrics.py",
}
MAY_IMPORT_VLLM = ("replicas/", "benchmarks/", "serve_app/checks/", "serve_app/launch/engine_flags")


def loaded(*modules: str) -> set[str]:
    """The heavy packages that a fresh process has after importing these."""
    script = (
        f"import {', '.join(modules)}, sys\n"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPO, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_controller_is_pure() -> None:
    assert loaded(*PURE) == set()


def test_they_start_without_anything_heavy() -> None:
    heavy = loaded(*LIGHT) and {module: found for module in LIGHT if (found := loaded(module))}
    assert not heavy


def test_the_autoscaling_policy_needs_nothing_but_ray_and_what_it_decides_by() -> None:
    names = {n.split(".")[0] for n in outside(REPO / "serve_app" / "autoscaling.py", "scaling")}
    assert names - {"ray"} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("path", sorted((REPO / "serve_app" / "scaling").glob("*.py")))
def test_what_it_decides_by_needs_nothing_but_the_standard_library(path: Path) -> None:
    assert {n.split(".")[0] for n in outside(path, "scaling")} <= set(sys.stdlib_module_names)


def outside(path: Path, folder: str) -> set[str]:
    """What a module imports from elsewhere than this folder of ``serve_app``."""
    return {n for n in imports(path) if not n.startswith(f"serve_app.{folder}")}


@pytest.mark.parametrize("module", ["choice", "prompt", "replica_load"])
def test_what_the_router_decides_by_needs_nothing_but_the_standard_library(module: str) -> None:
    path = REPO / "serve_app" / "routing" / f"{module}.py"
    theirs = {n for n in imports(path) if not n.startswith("serve_app.routing.")}
    assert {name.split(".")[0] for name in theirs} <= set(sys.stdlib_module_names)


def test_ray_and_vllm_are_imported_only_where_they_belong() -> None:
    wrong = set()
    for room in ("controller", "replicas"):
        for path in (REPO / room).rglob("*.py"):
            file = path.relative_to(REPO).as_posix()
            roots = {name.split(".")[0] for name in imports(path)}
            if "ray" in roots and file not in MAY_IMPORT_RAY:
                wrong.add((file, "ray"))
    for room in ("controller", "serve_app"):
        for path in (REPO / room).rglob("*.py"):
            file = path.relative_to(REPO).as_posix()
            roots = {name.split(".")[0] for name in imports(path)}
            if "vllm" in roots and not file.startswith(MAY_IMPORT_VLLM):
                wrong.add((file, "vllm"))
    assert wrong == set()


def imports(path: Path) -> set[str]:
    """Every module named in an import statement of ``path``, wherever it stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def file_of(module: str) -> Path | None:
    path = REPO / module.replace(".", "/")
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
            if top in ("controller", "replicas", "configs"):
                todo |= {name} - seen
            elif top not in sys.stdlib_module_names:
                others.add(top)
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    base = {re.split(r"[>=<\[]", one)[0] for one in project["dependencies"]}
    with_vllm = {"torch", "vllm"}
    assert others == base | with_vllm
