"""Processes of a server: their kinds, their CPU, and that a stopped one takes none."""

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from benchmarks.path.processes import Tree, idle_cores, kind, spent_s

BUSY = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'while True: pass']).wait()"


@pytest.fixture
def tree() -> Iterator[Tree]:
    """A process that waits for its child, and the child, which is busy."""
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    found = Tree(process.pid)
    while len(found.processes()) < 2:
        assert process.poll() is None
    yield found
    for one in found.processes():
        one.kill()
    process.wait()


def test_stopped_processes_take_no_cpu_until_they_go_on(tree: Tree) -> None:
    tree.stop()
    assert {one.status() for one in tree.processes()} == {psutil.STATUS_STOPPED}
    assert idle_cores(tree, 0.2) == 0
    tree.resume()
    assert psutil.STATUS_STOPPED not in {one.status() for one in tree.processes()}
    while idle_cores(tree, 0.2) == 0:
        assert len(tree.processes()) == 2


def test_memory_is_that_of_all(tree: Tree) -> None:
    tree.stop()  # so that it stays what it is
    assert tree.memory_bytes() > sum(p.memory_full_info().uss for p in tree.processes())


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["VLLM::EngineCore"], "engine"),
        (["VLLM::Worker"], "worker"),
        (["ray::ServeReplica:static:BrimfulServer:tiny"], "server"),
        (["ray::ServeReplica:ray-direct:LLMRouter"], "router"),
        (["ray::ServeReplica:ray-default:OpenAiIngress"], "ingress"),
        (["ray::ProxyActor"], "proxy"),
        (["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"], "server"),
        (["/x/bin/haproxy", "-db"], "HAProxy"),
        (["ray::IDLE"], "Ray"),
        ([], "Ray"),
    ],
)
def test_the_kind_is_told_by_the_command_line(command: list[str], expected: str) -> None:
    assert kind(command) == expected


def test_cpu_is_added_up_by_kind_and_a_new_process_counts_whole() -> None:
    before = {1: ("server", 5.0), 2: ("worker", 1.0), 9: ("router", 1.0)}
    after = {1: ("server", 6.5), 2: ("worker", 1.25), 3: ("worker", 0.5)}
    assert spent_s(before, after) == {"server": 1.5, "worker": 0.75}
