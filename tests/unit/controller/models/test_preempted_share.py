"""The margin, by the preemptions that happen."""

import pytest

from controller.config import parse_batching
from controller.models.admission import MemoryAdmission
from controller.models.preempted_share import COOL_STEPS, RANGE, START, STEP, MemoryMargin, worth_of
from controller.policies.adaptive import AdaptiveStep
from controller.records import EngineLimits


def test_the_margin_moves_by_a_fifth_for_a_preemption_and_its_accepted_share_for_an_end() -> None:
    margin = MemoryMargin(0.02)
    assert margin.value == 1.0
    margin.preempted(5)
    assert margin.value == pytest.approx(1.2)
    margin.preempted(12)  # within 8 steps it has the same cause
    assert margin.value == pytest.approx(1.2)
    margin.preempted(13)
    assert margin.value == pytest.approx(1.4)
    margin.finished(1.0)
    assert margin.value == pytest.approx(1.4 - 0.2 * 0.02)


def test_the_first_preemption_counts_whenever_it_is() -> None:
    margin = MemoryMargin(0.02)
    margin.preempted(0)
    assert margin.value == pytest.approx(1.2)


def test_the_margin_rests_where_the_accepted_share_is_preempted() -> None:
    margin = MemoryMargin(0.02)
    for burst in range(50):  # one in fifty: 0.02
        for _ in range(50):
            margin.finished(1.0)
        margin.preempted(50 * burst)
    assert margin.value == pytest.approx(START, abs=STEP)


def test_the_margin_keeps_its_range() -> None:
    margin = MemoryMargin(0.02)
    for _ in range(2000):
        margin.finished(1.0)
    assert margin.value == RANGE[0] == 0.0
    for k in range(2000):
        margin.preempted(COOL_STEPS * k)
    assert margin.value == RANGE[1] == 3.0


def test_an_answer_is_worth_one_request_for_each_ten_of_its_tokens_and_one_at_least() -> None:
    assert [worth_of(tokens) for tokens in (0, 1, 10, 11, 3000)] == [1.0, 1.0, 1.0, 1.1, 300.0]


def test_the_margin_rests_where_a_tenth_of_the_late_gaps_is_for_preemptions() -> None:
    """3,000 tokens each and p99: thirty gaps of each may be late, three of them preemptions."""
    margin, tokens = MemoryMargin(0.01), 3000
    for end in range(200):
        for k in range(3):
            margin.preempted(100 * end + 10 * k)
        margin.finished(worth_of(tokens))
    assert margin.value == pytest.approx(START, abs=4 * STEP)


def test_a_long_answer_counts_as_several_where_the_bound_is_of_gaps() -> None:
    for of_gaps, requests_worth in ((True, 30), (False, 1)):
        one = MemoryAdmission(11_800, 16, 0.01, epsilon_is_per_gap=of_gaps)
        one.finished(300)
        assert one.margin is not None
        assert one.margin.value == pytest.approx(1 - 0.2 * 0.01 * requests_worth)


@pytest.mark.parametrize(
    ("share", "sla", "of_gaps"),
    [
        (None, {"itl_ms": 50}, True),
        (0.01, {"itl_ms": 50}, False),
        (None, {"itl_ms": 50, "ttft_ms": 2000, "delivery": "paced"}, False),
    ],
)
def test_a_share_that_is_set_is_of_requests_and_an_slas_is_of_gaps(share, sla, of_gaps):
    config = parse_batching({"overflow_probability": share, "sla": sla})
    step = AdaptiveStep(config, EngineLimits(8, 512, 4096, 16))
    step.finished(300)
    margin = step._admission.margin
    assert margin is not None
    assert margin.value == pytest.approx(1 - 0.2 * 0.01 * (30 if of_gaps else 1))
