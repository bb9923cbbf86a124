"""The settings by which a cluster on few cores looks after itself more seldom: Ray still has them.

No cluster is started: Python's show in their modules, those of C++ in the raylet's binary.
"""

import inspect
import mmap
from pathlib import Path

import pytest
import ray
from ray._private import ray_constants
from ray._private.node import Node
from ray.dashboard.modules.aggregator import aggregator_agent
from ray.dashboard.modules.event import event_consts
from ray.dashboard.modules.reporter import reporter_consts
from ray.scripts.scripts import start
from ray.serve._private import constants

from benchmarks.path.stacks import AS_SHIPPED, FEW_CORES
from serve_app.demo.cluster import DRAIN, ENVIRONMENT, SELDOM

PYTHON = {
    "REPORTER_UPDATE_INTERVAL_MS": reporter_consts.REPORTER_UPDATE_INTERVAL_MS,
    "EVENT_AGENT_REPORT_INTERVAL_SECONDS": event_consts.EVENT_AGENT_REPORT_INTERVAL_SECONDS,
    "RAY_DASHBOARD_AGGREGATOR_AGENT_CHECK_MAIN_THREAD_LIVENESS_INTERVAL_SECONDS": (
        aggregator_agent.CHECK_MAIN_THREAD_LIVENESS_INTERVAL_SECONDS
    ),
}


def test_what_a_local_cluster_sets_is_set_back_for_ray_as_shipped() -> None:
    assert SELDOM.items() <= ENVIRONMENT.items()
    assert SELDOM.keys() <= AS_SHIPPED.keys()


@pytest.mark.parametrize("name", PYTHON)
def test_ray_still_reads_it_and_has_it_as_we_say(name: str) -> None:
    assert float(AS_SHIPPED[name]) == PYTHON[name]
    assert float(SELDOM[name]) > PYTHON[name]


def test_serves_control_loop_still_waits_a_tenth_of_a_second() -> None:
    (name,) = FEW_CORES
    assert name == "RAY_SERVE_CONTROL_LOOP_INTERVAL_S"
    assert constants.CONTROL_LOOP_INTERVAL_S == 0.1


def test_rays_own_binary_still_knows_the_others() -> None:
    binary = Path(ray.__file__).parent / "core/src/ray/raylet/raylet"
    with binary.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        for name in SELDOM.keys() - PYTHON.keys():
            assert text.find(name.removeprefix("RAY_").encode()) >= 0, name


def test_a_node_that_is_ended_still_drains_for_half_a_minute_unless_it_is_told_not_to() -> None:
    assert ray_constants.RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S == 30
    assert DRAIN in inspect.getsource(ray_constants)
    source = inspect.getsource(Node)
    assert "timeout_s = ray_constants.RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S" in source


def test_ray_start_still_takes_that_nobody_reads_the_logs() -> None:
    assert "include_log_monitor" in {option.name for option in start.params}
