"""A detached actor outlives a redeployment, and other code then handles it, on a real cluster."""

import asyncio
import json
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import ray

from controller.config import parse_batching
from controller.fleet.actor import get_controller, running_versions
from controller.records import to_wire
from controller.version import VERSION
from tests.builders import report
from tests.ray.conftest import REPO

pytestmark = pytest.mark.cluster

# A replica of other code: it starts or finds its controller, and exchanges once.
REPLICA = """
import json, pickle, sys
import ray
from controller.fleet.actor import get_controller
from controller.config import parse_batching
from controller.version import VERSION

address, ends_after_s = sys.argv[1], float(sys.argv[2])
wire = pickle.loads(bytes.fromhex(sys.argv[3]))
ray.init(address=address, runtime_env={"working_dir": "."}, log_to_driver=False)
controller = get_controller(ends_after_s)
wire["version"] = VERSION
block = parse_batching({"policy": "static"}).model_dump()
limits = ray.get(controller.exchange.remote(wire, block))
began = ray.get(controller.snapshot.remote())["started_unix_s"]
switched = [switch["group"] for switch in limits["switches"]]
print(json.dumps([VERSION, "step_aside" in block, limits["max_running"], began, switched]))
"""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This project's controller before ``batching.step_aside`` came."""
    folder = tmp_path_factory.mktemp("earlier")
    shutil.copytree(REPO / "controller", folder / "controller")
    config = folder / "controller" / "config.py"
    without = re.sub(r"    step_aside: .*?\n    \)\n", "", config.read_text(), flags=re.DOTALL)
    config.write_text(without)
    rename_version(folder)
    return folder


def rename_version(folder: Path) -> None:
    version = folder / "controller" / "version.py"
    version.write_text(version.read_text().replace('VERSION = f"', f'VERSION = f"{folder.name}-'))


def exchange_of_earlier(
    folder: Path, address: str, seq: int, ends_after_s: float = 600.0
) -> tuple[str, bool, int, float, list[str]]:
    """Its version, whether it knows the key, its cap, since when its controller lives, and for
    which groups control was switched."""
    wire = pickle.dumps(to_wire(report(seq=seq))).hex()
    done = subprocess.run(
        [sys.executable, "-c", REPLICA, address, str(ends_after_s), wire],
        cwd=folder,
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    version, knows, cap, began, switched = json.loads(done.stdout.splitlines()[-1])
    return version, knows, cap, began, switched


async def test_replicas_of_two_versions_are_served_each_by_its_own_controller(cluster, earlier):
    before = await asyncio.to_thread(exchange_of_earlier, earlier, cluster.gcs_address, 1)
    assert before[0] != VERSION
    assert before[1:3] == (False, 256)
    # Redeployed: a key that the running controller does not know.
    block = parse_batching({"policy": "static", "step_aside": True, "max_running": {"max": 48}})
    ours = get_controller()
    limits = ray.get(ours.exchange.remote(to_wire(report(group="v")), block.model_dump()))
    assert limits["max_running"] == 48
    assert {before[0], VERSION} <= set(running_versions())
    # What is left of the first deployment goes on with the controller that it has.
    after = await asyncio.to_thread(exchange_of_earlier, earlier, cluster.gcs_address, 2)
    assert after == before
