"""Which tests run which lines: the fast tests once, with a context of coverage for each test.

python -m tests.mutants.cover OUT.json FILE ...
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import coverage
import pytest

TESTS = ["tests/unit", "tests/property"]
# They reach the controller through a whole configuration file, and take longer than all others.
LEFT_OUT = [
    "test_check*",
    "test_k8s*",
    "test_manifest*",
    "test_imports*",
    "test_llm_config*",
    "test_traffic*",
]
QUIET = [
    *("-q", "--no-header", "--tb=short", "-o", "addopts="),
    *("-p", "no:cacheprovider", "-p", "no:anyio", "-W", "ignore"),
]


class _Contexts:
    """Tells coverage which test runs, and keeps the CPU time of each (the machine may be busy)."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self._start_s = 0.0
        self.took_s: dict[str, float] = defaultdict(float)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._measured.switch_context(without_parameters(item.nodeid))
        self._start_s = time.process_time()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self.took_s[without_parameters(item.nodeid)] += time.process_time() - self._start_s
        self._measured.switch_context("")


def without_parameters(nodeid: str) -> str:
    """The test's id, for all of its parameters together."""
    return nodeid.partition("[")[0]


def main(argv: Sequence[str]) -> int:
    out, files = Path(argv[0]), argv[1:]
    measured = coverage.Coverage(data_file=None, include=[str(Path(f).resolve()) for f in files])
    contexts = _Contexts(measured)
    measured.start()
    ignored = [f"--ignore-glob=tests/*/{name}" for name in LEFT_OUT]
    code = int(pytest.main([*QUIET, *ignored, *TESTS], plugins=[contexts]))
    measured.stop()
    data = measured.get_data()
    lines = {
        file: {
            line: sorted(test for test in tests if test)
            for line, tests in data.contexts_by_lineno(str(Path(file).resolve())).items()
        }
        for file in files
    }
    out.write_text(json.dumps({"lines": lines, "took_s": contexts.took_s}))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
