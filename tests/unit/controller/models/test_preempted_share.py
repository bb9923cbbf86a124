"""Theta, by the preemptions that happen."""

import pytest

from controller.config import parse_batching
from controller.models.admission import MemoryAdmission
from controller.models.preempted_share import COOL_STEPS, RANGE, START, STEP, Theta, worth_of
from controller.policies.adaptive import AdaptiveStep
from controller.records import EngineLimits


def test_theta_moves_by_a_fifth_for_a_preemption_and_its_accepted_share_for_an_end() -> None:
    theta = Theta(0.02)
    assert theta.value == 1.0
    theta.preempted(5)
    assert theta.value == pytest.approx(1.2)
    theta.preempted(12)  # within 8 steps it has the same cause
    assert theta.value == pytest.approx(1.2)
    theta.preempted(13)
    assert theta.value == pytest.approx(1.4)
    theta.finished()
    assert theta.value == pytest.approx(1.4 - 0.2 * 0.02)


def test_the_first_preemption_counts_whenever_it_is() -> None:
    theta = Theta(0.02)
    theta.preempted(0)
    assert theta.value == pytest.approx(1.2)


def test_theta_rests_where_the_accepted_share_is_preempted() -> None:
    theta = Theta(0.02)
    for burst in range(50):  # one in fifty: 0.02
        for _ in range(50):
            theta.finished()
        theta.preempted(50 * burst)
    assert theta.value == pytest.approx(START, abs=STEP)


def test_theta_keeps_its_range() -> None:
    theta = Theta(0.02)
    for _ in range(2000):
        theta.finished()
    assert theta.value == RANGE[0] == 0.0
    for k in range(2000):
        theta.preempted(COOL_STEPS * k)
    assert theta.value == RANGE[1] == 3.0


def test_an_answer_is_worth_one_request_for_each_ten_of_its_tokens_and_one_at_least() -> None:
    assert [worth_of(tokens) for tokens in (0, 1, 10, 11, 3000)] == [1.0, 1.0, 1.0, 1.1, 300.0]


def test_theta_rests_where_a_tenth_of_the_late_gaps_is_for_preemptions() -> None:
    """3,000 tokens each and p99: thirty gaps of each may be late, three of them preemptions."""
    theta, tokens = Theta(0.01), 3000
    for end in range(200):
        for k in range(3):
            theta.preempted(100 * end + 10 * k)
        theta.finished(worth_of(tokens))
    assert theta.value == pytest.approx(START, abs=4 * STEP)


def test_a_long_answer_counts_as_several_where_the_bound_is_of_gaps() -> None:
    for of_gaps, requests_worth in ((True, 30), (False, 1)):
        one = MemoryAdmission(11_800, 16, 0.01, of_gaps=of_gaps)
        one.finished(300)
        assert one.theta is not None
        assert one.theta.value == pytest.approx(1 - 0.2 * 0.01 * requests_worth)


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
    theta = step._admission.theta
    assert theta is not None
    assert theta.value == pytest.approx(1 - 0.2 * 0.01 * (30 if of_gaps else 1))
