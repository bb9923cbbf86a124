"""The margin, by the preemptions that happen."""

import pytest

from controller.models.preempted_share import (
    START,
    STEP,
    MemoryMargin,
    worth_of,
)
from controller.policies.adaptive import decide
from tests.builders import batching, moments_of, seen


def test_the_margin_moves_by_a_step_for_a_preemption_and_its_accepted_share_for_an_end() -> None:
    margin = MemoryMargin(0.02)
    assert margin.value == START
    margin.preempted(0)
    assert margin.value == START
    margin.preempted(1)
    assert margin.value == pytest.approx(START + STEP)
    margin.preempted(50)  # of one period: they have one cause, and count twice
    assert margin.value == pytest.approx(START + 3 * STEP)
    margin.finished(1.0)
    assert margin.value == pytest.approx(START + 3 * STEP - 0.02 * STEP)


def test_an_answer_is_worth_one_request_for_each_ten_of_its_tokens_and_one_at_least() -> None:
    assert [worth_of(tokens) for tokens in (0, 1, 10, 11, 3000)] == [1.0, 1.0, 1.0, 1.1, 300.0]


@pytest.mark.parametrize(
    ("share", "sla", "moved"),
    [
        (None, {"itl_ms": 50}, 0.01 * 30),  # p99 of gaps: an answer of 300 tokens has many
        (0.01, {"itl_ms": 50}, 0.01),  # of requests
        (0.03, {}, 0.03),
    ],
)
def test_a_share_that_is_set_is_of_requests_and_an_slas_is_of_gaps(share, sla, moved):
    config = batching(policy="adaptive", overflow_probability=share, sla=sla)
    memory = {}
    for seq, preempted in enumerate((0, 0, 3), 1):
        said = {"finished": 2 * seq, "preemptions": preempted, "lengths": moments_of([(9, 300)])}
        _, memory = decide(memory, seen(config, seq=seq, **said))
    assert memory["margin"] == pytest.approx(START - STEP * moved * 4 + 2 * STEP)


def test_what_happens_while_nothing_is_enforced_does_not_move_it() -> None:
    config = batching(policy="adaptive")
    _, memory = decide({}, seen(config, preemptions=9, finished=50, enforced=False))
    assert memory["margin"] == START
