"""``make bench-scale``: what is said of loads that were measured."""

from benchmarks.scale.__main__ import section
from benchmarks.scale.measure import CLIENT, Load, Scale


def scale(replicas: int, router_s: float) -> Scale:
    """Twice the replicas, twice the tokens, at twice the CPU time."""
    spent = {"HAProxy": 0.5, "LLMRouter": router_s, "replica": 4.0, CLIENT: 1.0}
    long_answers = Load(10.0, 16 * replicas, 9000 * replicas, spent, 0.01)
    short = Load(8.0, 800, 800, spent, 0.02)
    return Scale(replicas, long_answers, short, ({"LLMRouter": 0.06, "replica": 0.12}, 6.0))


def test_rows_are_per_cpu_second_of_all_but_the_client() -> None:
    found = section([scale(1, 0.5), scale(2, 4.0)])
    rows = {row.id: row.estimate.value for row in found.rows}
    assert rows == {
        "tokens_per_cpu_s_1": 9000 / 5,
        "requests_per_s_1": 100,
        "tokens_per_cpu_s_2": 18_000 / 8.5,
        "requests_per_s_2": 100,
        "decisions_per_core_s": 200,
    }


def test_a_process_of_each_replica_is_shown_for_one_of_them() -> None:
    *_, idle = section([scale(1, 0.5), scale(2, 4.0)]).tables
    lines = {line.split("|")[1].strip(): line.split("|")[2:4] for line in idle.splitlines()}
    assert [cell.strip() for cell in lines["replica"]] == ["0.020", "0.010"]
    assert [cell.strip() for cell in lines["LLMRouter"]] == ["0.010", "0.010"]


def test_no_router_is_no_decision() -> None:
    found = section([scale(1, 0.0)])
    assert {row.id: row.estimate.value for row in found.rows}["decisions_per_core_s"] == 0
