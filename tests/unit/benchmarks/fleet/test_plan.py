"""The oracle's plan: the cheapest there is for its cost."""

from itertools import pairwise, product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fleet.plan import STEP_S, cheapest

BOUNDS = {"min_replicas": 1, "max_replicas": 4}


def cost(path: tuple[int, ...], work: np.ndarray, price: float, change_s: float) -> float:
    lost = sum(np.maximum(w - n, 0.0).mean() for w, n in zip(work, path, strict=True))
    started = sum(max(b - a, 0) for a, b in pairwise(path))
    return sum(path) + price * float(lost) + change_s / STEP_S * started


@given(
    parts=st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=4),
    price=st.floats(0.5, 100),
    change_s=st.sampled_from([0.0, 10.0, 100.0]),
)
def test_no_other_plan_costs_less(
    parts: list[tuple[float, float]], price: float, change_s: float
) -> None:
    work = np.array(parts)
    plan = tuple(cheapest(work, price, change_s, BOUNDS).tolist())
    found = cost(plan, work, price, change_s)
    others = (cost(p, work, price, change_s) for p in product(range(1, 5), repeat=len(parts)))
    assert found <= min(others) + 1e-9


def test_a_burst_that_costs_less_to_lose_than_a_start_is_lost() -> None:
    work = np.array([[1.0], [1.0], [3.0], [1.0], [1.0]])
    # Two replicas for ten seconds, and starts of as long: 2 x (1 + 1) against 2 x price.
    assert cheapest(work, 1.9, 10.0, BOUNDS).tolist() == [1, 1, 1, 1, 1]
    assert cheapest(work, 2.1, 10.0, BOUNDS).tolist() == [1, 1, 3, 1, 1]


def test_between_two_needs_replicas_stay_where_a_start_costs_more() -> None:
    work = np.array([[3.0], [1.0], [1.0], [3.0]])
    assert cheapest(work, 1000.0, 10.0, BOUNDS).tolist() == [3, 1, 1, 3]
    assert cheapest(work, 1000.0, 30.0, BOUNDS).tolist() == [3, 3, 3, 3]


def test_work_is_lost_by_the_parts_of_a_step() -> None:
    # On average two replicas carry it; in half of the time a replica's work is above them.
    work = np.array([[1.0, 3.0]])
    assert cheapest(work, 1.9, 0.0, BOUNDS).tolist() == [1]
    assert cheapest(work, 2.1, 0.0, BOUNDS).tolist() == [3]
