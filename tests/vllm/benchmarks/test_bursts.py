"""``make results``, A1 and A2, with few requests, and which static setting it prefers."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.report.workers import Bench
from benchmarks.results import a1_bursts as burst
from benchmarks.results import a2_turn as turn
from benchmarks.results.a1_bursts import Burst, Served


@pytest.mark.parametrize("part", [burst, turn])
def test_a_small_part_has_all_its_figures(part: object) -> None:
    with ThreadPoolExecutor(1) as pool:
        section = part.run(Bench(pool, (1,), small=True))  # type: ignore[attr-defined]
    ids = [row.id for row in section.rows]
    assert len(ids) == len(set(ids)) >= 3
    assert section.markdown("make results")


def test_tokens_decide_among_settings_inside_the_sla_and_late_ones_outside() -> None:
    fast_late, slow_late = Served(0.3, 200.0), Served(0.02, 100.0)
    fast, slow = Served(0.015, 90.0), Served(0.0, 80.0)
    order = [fast, slow, slow_late, fast_late]
    assert all(a.better_than(b) for i, a in enumerate(order) for b in order[i + 1 :])
    assert not any(b.better_than(a) for i, a in enumerate(order) for b in order[i:])


def test_the_largest_batch_takes_the_itl_with_its_last_tokens() -> None:
    one = Burst("paper-fig3", burst.WORKLOADS[1], 30.0, 60.0)
    assert burst.largest_batch(one) == int((60 - 26.9) / 0.2308)
    assert one.id == "paper.fixed.30.60"


def test_short_answers_come_back_after_the_long_ones() -> None:
    there = turn.requests_of(turn.Task("adaptive", 30_000, back=False))
    back = turn.requests_of(turn.Task("adaptive", 30_000, back=True))
    assert back[: len(there)] == there
    assert {r.output_tokens for r in back[len(there) :]} == {turn.SHORT}
    assert [r.arrival_s for r in back] == sorted(r.arrival_s for r in back)
