"""Errors of our own: the limits that held go on for a lease, then vLLM's own do."""

import logging
import math
from typing import Any

import pytest

from controller.config import BatchingConfig
from controller.errors import ConfigError
from controller.policies.base import ReadBatch
from controller.records import StepLimits
from replicas.engine.fail_open import SAY_AGAIN_S, Guard
from replicas.engine.governor import Governor
from tests.builders import ENGINE, batching, limits, sample, state

OWN = StepLimits(ENGINE.max_num_seqs, ENGINE.max_num_batched_tokens)


class BrokenError(RuntimeError):
    """An error that nobody has thought of."""


def raises(*args: Any, **kwargs: Any) -> Any:
    raise BrokenError("of our own")


def governor(config: BatchingConfig | None = None) -> Governor:
    guard = Guard(0.0)
    return Governor(
        config or batching(), ENGINE, has_controller=True, now_s=0.0, group="g", guard=guard
    )


def held(g: Governor, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes by a cap of 30 and a budget of 600 tokens; from now on its policy fails."""
    g.apply(limits(max_running=30, token_budget=600, lease_s=1e9), 10.0)
    found = g.before_step(state(running=5), 10.0)
    assert (found.max_running, found.token_budget) == (30, 600)
    monkeypatch.setattr(g.step_half, "limits", raises)


def test_the_limits_of_the_last_step_go_on_for_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    g = governor()
    held(g, monkeypatch)
    for now_s in (11.0, 11.0 + 0.99 * g.config.lease_s):
        found = g.before_step(state(running=5), now_s)
        assert (found.max_running, found.token_budget) == (30, 600)
    assert g.before_step(state(running=5), 11.0 + g.config.lease_s) == OWN
    assert g.report(state(), 17.0, "r", "g").own_errors == 3


def test_they_are_kept_safe_for_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    g = governor()
    held(g, monkeypatch)
    assert g.before_step(state(running=40), 11.0).max_running == 40


def test_places_of_requests_that_were_left_out_do_not_go_on(monkeypatch):
    g = governor()
    asked = StepLimits(30, 600, skipped=(0, 1), decodes_first=True, longest_chunk_tokens=16)
    monkeypatch.setattr(g.step_half, "limits", lambda *args: asked)
    assert g.before_step(state(running=5), 10.0).skipped == (0, 1)
    monkeypatch.setattr(g.step_half, "limits", raises)
    assert g.before_step(state(running=5), 11.0) == StepLimits(30, 600)


def test_a_step_that_goes_well_begins_the_lease_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    g = governor()
    held(g, monkeypatch)
    assert g.before_step(state(running=5), 11.0).max_running == 30
    monkeypatch.undo()
    assert g.before_step(state(running=5), 12.0).max_running == 30
    monkeypatch.setattr(g.step_half, "limits", raises)
    late_s = 11.0 + g.config.lease_s
    assert g.before_step(state(running=5), late_s).max_running == 30
    assert g.before_step(state(running=5), late_s + g.config.lease_s) == OWN


def test_a_clock_that_goes_back_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    g = governor()
    held(g, monkeypatch)
    g.before_step(state(running=5), 11.0)
    assert g.before_step(state(running=5), 3.0) == OWN


def test_where_control_is_off_it_stays_off(monkeypatch: pytest.MonkeyPatch) -> None:
    g = governor(batching(enforce=False))
    monkeypatch.setattr(g.step_half, "limits", raises)
    assert g.before_step(state(running=5), 11.0) == OWN


def test_a_local_loop_that_always_fails_gives_way_to_what_is_configured(monkeypatch):
    g = governor(batching(max_running={"max": 200}))
    g.apply(limits(max_running=2, lease_s=1.0), 10.0)
    monkeypatch.setattr(g._fallback, "exchange", raises)
    caps = {now_s: g.before_step(state(running=2), now_s).max_running for now_s in (10.5, 11.0)}
    for now_s in (13.0, 15.9, 16.5, 16.6, 30.0):
        caps[now_s] = g.before_step(state(running=2), now_s).max_running
    assert caps == {10.5: 2, 11.0: 2, 13.0: 2, 15.9: 2, 16.5: 200, 16.6: 200, 30.0: 200}
    g.apply(limits(max_running=7, lease_s=1.0), 31.0)
    assert g.before_step(state(running=2), 31.0).max_running == 7
    monkeypatch.undo()
    g.before_step(state(running=2), 33.0)
    monkeypatch.setattr(g._fallback, "exchange", raises)
    g.apply(limits(max_running=9, lease_s=1.0), 40.0)
    assert g.before_step(state(running=2), 41.0).max_running == 9  # a lease of its own


@pytest.mark.parametrize(
    "wrong",
    [
        StepLimits(math.nan, 600),  # type: ignore[arg-type]
        StepLimits(30, 600.5),  # type: ignore[arg-type]
        StepLimits(30, 600, skipped=(5,)),
        StepLimits(30, 600, skipped=(-1, 2)),
    ],
)
def test_limits_that_are_none_are_an_error(wrong, monkeypatch):
    g = governor()
    held(g, monkeypatch)
    monkeypatch.setattr(g.step_half, "limits", lambda *args: wrong)
    assert g.before_step(state(running=5), 11.0) == StepLimits(30, 600)
    assert g._guard.errors == 1


def test_what_reads_the_batch_may_fail_as_well() -> None:
    def asks(_: Any, read_batch: ReadBatch, __: Any) -> StepLimits:
        read_batch()
        return OWN

    g = governor()
    g.step_half.limits = asks  # type: ignore[method-assign]
    found = g.before_step(state(running=5), 11.0, raises)
    assert found.max_running == ENGINE.max_num_seqs
    assert g._guard.errors == 1


def test_a_report_that_cannot_be_true_leaves_the_limits_as_they_are(caplog):
    g = governor(batching(paper={"memory": "exact"}))
    for _ in range(5):
        g.finished(100, 100)
        g.after_step(sample(decodes=10, duration_s=0.02), 1)
    g.apply(limits(max_running=30, lease_s=5.0), 10.0)
    g.before_step(state(waiting=5), 10.0)
    for now_s in (15.0, 15.1, 16.0):
        assert g.before_step(state(waiting=-1), now_s).max_running == 30
    assert g.mode(16.0) == "fallback"
    assert "report.waiting: -1 is not allowed" in caplog.text
    assert g.before_step(state(waiting=5), 17.0).max_running == 100


def test_without_a_guard_an_error_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    g = Governor(batching(), ENGINE, has_controller=False, now_s=0.0)
    monkeypatch.setattr(g.step_half, "limits", raises)
    with pytest.raises(BrokenError):
        g.before_step(state(), 0.0)


def test_a_wrong_configuration_is_still_told() -> None:
    with pytest.raises(ConfigError, match=r"batching\.max_running\.max: 512"):
        governor().configure(batching(max_running={"max": 512}))


def test_the_log_has_each_kind_of_error_once_a_minute(monkeypatch, caplog):
    g, seconds = governor(), int(SAY_AGAIN_S) + 1
    for name in ("limits", "observe"):
        monkeypatch.setattr(g.step_half, name, raises)
    for second in range(seconds):
        g.before_step(state(), float(second))
        assert not g._guard.attempt("a step's measures", g.after_step, sample(), 0)
    said = [r for r in caplog.records if r.levelno == logging.ERROR]
    for kind in ("the limits of a step", "a step's measures"):
        first, last = (r for r in said if kind in r.getMessage())
        assert first.exc_info is not None and first.exc_info[0] is BrokenError
        assert "so far" in last.getMessage()
    assert len(said) == 4


def test_where_the_policy_cannot_take_a_step_in_it_is_counted(monkeypatch):
    g = governor()
    monkeypatch.setattr(g.step_half, "observe", raises)
    monkeypatch.setattr(g.step_half, "resumed", raises)
    for act in (lambda: g.after_step(sample(decodes=4), 0), lambda: g.resumed(0.3)):
        assert not g._guard.attempt("a count", act)
    said = g.report(state(), 1.0, "r", "g")
    assert (said.itl.n, said.recent.steps, said.own_errors) == (5, 1, 2)
