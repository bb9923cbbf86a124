"""The replay's ledger: each request's tokens, gaps and stays, by hand."""

import pytest

from simulator.virtual.ledger import Ledger, ReplayError
from simulator.virtual.trace import Outcome, Stay
from simulator.workloads.requests import Request

FIRST, SECOND = Request(0.0, 10, 3), Request(0.5, 20, 2)


def ledger() -> Ledger:
    """A ledger of two admitted requests, one second apart."""
    kept = Ledger()
    kept.come(0, FIRST)
    kept.come(1, SECOND)
    return kept


def test_outcomes_are_in_order_and_those_that_were_refused_among_them() -> None:
    kept = Ledger()
    kept.come(1, SECOND)
    kept.refuse(0, FIRST)
    outcomes, stays = kept.close(9.0, {})
    assert list(outcomes.items()) == [
        (0, Outcome(FIRST, refused=True)),
        (1, Outcome(SECOND, False, 0, None, None, None, 0)),
    ]
    assert stays == ()


def test_tokens_gaps_and_ends_are_as_they_were_sent() -> None:
    kept = ledger()
    kept.enter_batch(["0"], 1.0)
    kept.token("0", 1, ends=False, now_s=2.0)
    assert (len(kept), kept.remaining("0"), kept.gaps) == (2, 2, [])
    kept.token("0", 2, ends=True, now_s=2.5)  # two in one step are one gap
    assert kept.gaps == [(0.5, 2.5, 0)]
    assert (len(kept), kept.finished) == (1, 1)
    outcomes, stays = kept.close(9.0, {})
    assert outcomes[0] == Outcome(FIRST, False, 3, 1.0, 2.0, 2.5, 0)
    assert stays == (Stay(0, 1.0, 2.5, 2.5),)


def test_a_preemption_closes_a_stay_and_the_next_start_opens_another() -> None:
    kept = ledger()
    kept.enter_batch(["0", "1"], 1.0)
    kept.token("1", 1, ends=False, now_s=2.0)
    kept.preempt("1", 3.0)
    kept.enter_batch(["1"], 5.0)
    kept.token("1", 1, ends=True, now_s=6.0)
    outcomes, stays = kept.close(7.0, {})
    assert stays == (Stay(1, 1.0, 3.0, 3.0), Stay(1, 5.0, 6.0, 6.0), Stay(0, 1.0, 7.0, 7.0))
    # It was first scheduled at 1 s; the wait for its place is in the gap between its tokens.
    assert outcomes[1] == Outcome(SECOND, False, 2, 1.0, 2.0, 6.0, 1)
    assert kept.gaps == [(4.0, 6.0, 1)]


def test_who_is_preempted_at_the_end_has_no_open_stay() -> None:
    kept = ledger()
    kept.enter_batch(["0"], 1.0)
    kept.preempt("0", 2.0)
    kept.preempt("1", 2.0)  # it had no place to lose
    outcomes, stays = kept.close(9.0, {"0": 7})
    assert stays == (Stay(0, 1.0, 2.0, 2.0),)
    assert [o.computed_tokens for o in outcomes.values()] == [7, 0]
    assert [o.preemptions for o in outcomes.values()] == [1, 1]
    assert [o.finished_s for o in outcomes.values()] == [None, None]


@pytest.mark.parametrize("tokens", [1, 4])
def test_an_end_with_more_or_fewer_tokens_than_asked_for_is_a_fault(tokens: int) -> None:
    kept = ledger()
    kept.enter_batch(["0"], 1.0)
    with pytest.raises(ReplayError, match=f"request 0 got {tokens} of 3 tokens"):
        kept.token("0", tokens, ends=True, now_s=2.0)
