"""Slack by columns that a step moves as a whole, held against slack counted one by one."""

from types import SimpleNamespace
from typing import Any

import pytest

from controller.config import Sla
from replicas.engine.pacing import FIRST_ROOM, Pacing, pacing_of

D = 0.05


def test_steps_that_are_under_way_will_have_given_their_tokens() -> None:
    pacing = Pacing(D, 0.0)
    pacing.first_token("r", 1.0, now_s=10.0)
    found = pacing.slack(10.0 + 0.03, ahead=1)
    assert (found.slack_s[0], found.generated[0]) == (pytest.approx(0.02), 2)


def test_one_that_lost_its_memory_is_out_until_it_is_back_and_keeps_its_pace() -> None:
    pacing = Pacing(D, 0.0)
    for name in "abc":
        pacing.first_token(name, 1.0, now_s=10.0)
    pacing.leave("a")
    pacing.leave("a")
    assert pacing.stepped(10.05) == 0
    assert len(pacing.slack(10.05, 0).slack_s) == 2
    pacing.enter("a", 2)
    assert pacing.slack(11.0, 0).slack_s.tolist() == pytest.approx([-0.95] * 3)
    for name in "cab":
        pacing.gone(name)
    pacing.enter("a", 9)  # unknown by now
    assert not len(pacing.slack(11.0, 0).slack_s)


def test_the_last_token_is_counted_with_its_step_and_then_the_request_is_gone() -> None:
    pacing = Pacing(D, 0.0)
    for name in "ab":
        pacing.first_token(name, 1.0, now_s=10.0)
    pacing.gone("a", ended=True)
    pacing.gone("unknown", ended=True)
    assert pacing.stepped(10.2) == 2
    assert pacing.slack(10.2, 0).slack_s.tolist() == pytest.approx([-0.15])
    pacing.enter("a", 2)
    assert pacing.stepped(10.4) == 1
    assert not pacing._ended


def test_there_is_room_for_any_number() -> None:
    pacing = Pacing(D, 0.0)
    for k in range(FIRST_ROOM + 3):
        pacing.first_token(str(k), 0.0, now_s=float(k))
    slack_s = pacing.slack(0.0, 0).slack_s
    assert slack_s.tolist() == pytest.approx([float(k) for k in range(FIRST_ROOM + 3)])


def test_columns_are_kept_where_the_agreement_stays() -> None:
    paced = Sla(itl_ms=50, ttft_ms=2000, delivery="paced")
    first = pacing_of(paced, None)
    assert first is not None
    assert pacing_of(paced.model_copy(update={"percentile": 95.0}), first) is first
    assert pacing_of(paced.model_copy(update={"itl_ms": 60}), first) is not first
    assert pacing_of(Sla(itl_ms=50), first) is None
    assert pacing_of(Sla(delivery="paced"), None) is None


def test_a_wall_clock_that_was_set_back_lends_no_more_than_the_time_to_first_token() -> None:
    pacing = Pacing(D, 2.0)
    pacing.first_token("r", -3600.0, now_s=10.0)
    assert pacing.slack(10.0, 0).slack_s.tolist() == pytest.approx([2.0])


def seen(req_id: str, generated: int, left: int = 1) -> Any:
    tokens = 10 + generated
    return SimpleNamespace(
        request_id=req_id,
        _output_token_ids=[0] * generated,
        num_tokens=tokens,
        num_computed_tokens=tokens - left,
    )


def test_a_look_at_all_that_run_puts_right_who_decodes() -> None:
    pacing = Pacing(D, 0.0)
    for name in "abcd":
        pacing.first_token(name, 1.0, now_s=10.0)
    pacing.leave("c")
    pacing.check([seen("a", 3), seen("b", 1, left=9), seen("c", 2), seen("new", 5)], always=True)
    # b computes its prompt again, c is back, d waits; of another nothing is known.
    found = pacing.slack(10.0, 0)
    assert sorted(found.generated.tolist()) == [2, 3]
    assert sorted(found.slack_s.tolist()) == pytest.approx([D, 2 * D])
    pacing.check([seen("a", 4), seen("b", 1)], always=True)
    assert sorted(pacing.slack(10.0, 0).generated.tolist()) == [1, 4]


def test_who_runs_is_looked_at_every_64_steps() -> None:
    pacing = Pacing(D, 0.0)
    pacing.first_token("a", 1.0, now_s=10.0)
    looked = []
    for step in range(1, 130):
        pacing.stepped(10.0)
        pacing.check(iter([looked.append(step) or seen("a", 1)] if step % 64 == 0 else []))
    assert looked == [64, 128]
    assert len(pacing.slack(10.0, 0).slack_s) == 1
