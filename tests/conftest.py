"""What this machine cannot run is left out, and said at the end of the run."""

import shutil

import pytest

from tests.browser.chromium import executable

NEEDS = {
    "browser": ("Chromium", lambda: executable() is not None, "apt-get install chromium"),
    "prometheus": (
        "Prometheus and its promtool",
        lambda: None not in (shutil.which("prometheus"), shutil.which("promtool")),
        "apt-get install prometheus",
    ),
}
LEFT_OUT = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of a program that is not here are deselected."""
    said = config.stash[LEFT_OUT] = []
    for marker, (program, is_here, how) in NEEDS.items():
        needing = [item for item in items if item.get_closest_marker(marker)]
        if needing and not is_here():
            items[:] = [item for item in items if item not in needing]
            config.hook.pytest_deselected(items=needing)
            said.append(f"not run: {len(needing)} tests that need {program} ({how})")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what was left out, where it is read."""
    for line in config.stash.get(LEFT_OUT, []):
        terminalreporter.write_line(line, yellow=True)
