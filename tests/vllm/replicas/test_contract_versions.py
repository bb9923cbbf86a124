"""The oldest and the newest vLLM have each private thing, and their schedulers do as ours assumes.

Their sources come from the registry (``tools.versions``). What is private is looked for in them;
then tests of the scheduler run on them in a process of their own, without a model.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from replicas.workarounds.vllm_private import ENGINE, attributes, imported, missing
from replicas.workarounds.vllm_source import VllmSource
from replicas.workarounds.vllm_versions import NEWEST, OLDEST
from tools.versions import VersionsError, folder_of

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
FIRST = ("contract", "waiting_queues")
TESTS = (
    *FIRST,
    "limits",
    "sessions",
    "start_order",
)
VERSIONS = pytest.mark.parametrize("release", [OLDEST, NEWEST])


def fetched(release: str) -> Path:
    try:
        return folder_of(release)
    except VersionsError as error:
        pytest.skip(f"vLLM {release} cannot be looked at: {error}")


@VERSIONS
def test_each_private_thing_is_there(release):
    source = VllmSource(fetched(release))
    things = [*attributes(), *imported(*ENGINE)]
    assert missing(things, release, source) == []


@VERSIONS
def test_its_scheduler_does_as_ours_assumes(release, pytestconfig):
    before = fetched(release).parent
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{before}"}
    # Of others than this file, which would start itself.
    names = TESTS if pytestconfig.getoption("contracts") else FIRST
    files = [str(HERE / f"test_{name}.py") for name in names]
    options = ["-q", "-p", "no:cacheprovider", "-m", "not alone", "--tb=short", *files]
    check = f"import sys, vllm, pytest; assert vllm.__version__ == {release!r}, vllm.__version__;"
    script = f"{check} sys.exit(pytest.main({options!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-1000:]
