"""Admission under overload, in virtual time: who is late, and what is served."""

from dataclasses import replace

import pytest

from tests.unit.replicas.admission.overload import Seen, Shape, Simulation, benched, others

SEEDS = (21, 22)
SHORTER = ("big replicas, other steps", "five classes")  # thousands of requests a phase


def runs(shape: Shape) -> list[Seen]:
    return [Simulation(shape, seed).run() for seed in SEEDS]


def test_in_the_benchs_shape_those_let_in_are_in_time_and_goodput_holds() -> None:
    for seen in runs(benched()):
        goodput = [seen.goodput_per_s(phase) for phase in range(5)]
        assert seen.late_frac <= 0.02
        assert min(goodput[1:4]) >= 0.9 * goodput[0]
        assert seen.goodput_per_s(4, skip_s=10.0) >= 0.9 * goodput[0]  # Poisson: of 200 requests
        assert seen.attained(3, "interactive") >= 0.99
        assert sum(a.attempts for a in seen.asked) <= 3 * len(seen.asked)


@pytest.mark.parametrize("name", others())
def test_of_other_fleets_and_demands_too_no_more_than_2_percent_are_late(name: str) -> None:
    shape = others()[name]
    if name in SHORTER:
        shape = replace(shape, seconds=20.0)
    for seen in runs(shape):
        assert seen.let_in.total() > 300
        assert seen.late_frac <= 0.02
        assert seen.goodput_at_peak() >= 0.85  # of the most that any load brought


def test_a_run_is_the_same_for_the_same_seed() -> None:
    shape = benched(seconds=5.0)
    one, other = (Simulation(shape, 3).run() for _ in range(2))
    assert one.asked == other.asked
    assert all(a.end for a in one.asked)


def test_capacity_is_that_of_full_slots_and_steps() -> None:
    shape = benched()
    # 12 slots, 80 tokens at 59.3 ms, 70 prompt tokens at 0.24 ms; two replicas, nine tenths.
    assert shape.capacity_per_s() == pytest.approx(0.9 * 2 / (80 / 12 * 0.0593 + 0.0168), rel=0.02)
