"""What this machine cannot run is left out, and said at the end; how many examples are drawn.

``HYPOTHESIS_PROFILE`` is ``default``, ``thorough``, ``ci`` or ``mutants``. In CI every run draws
the same examples, so that it fails for what a commit changed and not for a fault that has been
there all along. Those are looked for by hand: ``make test-thorough``.
"""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.browser.chromium import executable

EXAMPLES = {"default": 100, "thorough": 3000, "ci": 300, "mutants": 10}
ALWAYS_THE_SAME = ("ci", "mutants")  # a mutant would else be killed now and then

for name, max_examples in EXAMPLES.items():
    # No bound on wall-clock time: the machine may be busy with other things.
    settings.register_profile(
        name,
        deadline=None,
        max_examples=max_examples,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=name in ALWAYS_THE_SAME,
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


NEEDS = {
    "nixl": (
        "NIXL",
        lambda: find_spec("nixl") is not None,
        "pip install --no-deps nixl==1.5.1 nixl-cu12==1.5.1",
    ),
    "browser": ("Chromium", lambda: executable() is not None, "apt-get install chromium"),
    "prometheus": (
        "Prometheus and its promtool",
        lambda: None not in (shutil.which("prometheus"), shutil.which("promtool")),
        "apt-get install prometheus",
    ),
}
LEFT_OUT = pytest.StashKey[list[str]]()
# They start engines, clusters, browsers and Prometheus, and wait more than they compute: two run at
# once, never two of one group. The groups: those that share the cluster of tests/ray, those that
# start one of their own, the others. The rest of `make test` runs on all cores.
ALONE = {"cluster", "engine", "prometheus"}
ALONE_IN = tuple(Path(__file__).parent / name for name in ("browser", "ingress", "launch"))
SHARED, OWN, OTHERS = "shared", "own", "others"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lives", type=int, default=50, help="random lives of ours beside vLLM's own scheduler"
    )
    parser.addoption(
        "--families", action="store_true", help="all model families in test_contract_plan.py"
    )
    parser.addoption(
        "--contracts",
        action="store_true",
        help="all tests of the scheduler on the oldest and the newest vLLM",
    )


@pytest.fixture(scope="session")
def quick_pickle() -> Iterator[None]:
    """Deployments that are built are pickled, and cloudpickle goes through all modules for each
    function: where vLLM is imported, in 3 ms. What it looks for is imported where a pickle is read.
    """
    from ray.cloudpickle import cloudpickle

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cloudpickle, "_find_imported_submodules", lambda code, names: [])
        yield


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only those are asked for, modules without any are not imported."""
    if config.option.markexpr != "alone" or not collection_path.match("test_*.py"):
        return None
    if any(at in collection_path.parents for at in ALONE_IN):
        return None
    text = collection_path.read_text()
    return None if any(f"pytest.mark.{name}" in text for name in ALONE) else True


@pytest.hookimpl(tryfirst=True)  # before -m chooses by the marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what runs alone; tests of a program that is not here are deselected."""
    for item in items:
        markers = {marker.name for marker in item.iter_markers()}
        if ALONE & markers or any(at in item.path.parents for at in ALONE_IN):
            item.add_marker("alone")
            shared = SHARED if "cluster" in item.fixturenames else OWN  # type: ignore[attr-defined]
            group = shared if "cluster" in markers else OTHERS
            item.add_marker(pytest.mark.xdist_group(group))
    said = config.stash[LEFT_OUT] = []
    for marker, (program, is_here, how) in NEEDS.items():
        needing = [item for item in items if item.get_closest_marker(marker)]
        if needing and not is_here():
            items[:] = [item for item in items if item not in needing]
            config.hook.pytest_deselected(items=needing)
            said.append(f"not run: {len(needing)} tests that need {program} ({how})")


@pytest.hookimpl(tryfirst=True)  # before what failed is kept for --last-failed
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """xdist writes a test's group into its name, by which pytest alone would not find it."""
    if hasattr(report, "node"):  # from a worker, not in it
        for group in (SHARED, OWN, OTHERS):
            report.nodeid = report.nodeid.removesuffix(f"@{group}")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what was left out, where it is read."""
    for line in config.stash.get(LEFT_OUT, None) or _missing(config):
        terminalreporter.write_line(line, yellow=True)


def _missing(config: pytest.Config) -> list[str]:
    """What is not here, where other processes collected the tests."""
    if not config.getoption("numprocesses", None):
        return []
    return [
        f"not here, and its tests did not run: {program} ({how})"
        for program, is_here, how in NEEDS.values()
        if not is_here()
    ]
