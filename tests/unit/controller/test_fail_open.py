"""Errors of our own: the limits that held go on for a lease, then vLLM's own do."""

import math
from typing import Any

import pytest

from controller.config import BatchingConfig
from controller.errors import ConfigError
from controller.fail_open import Guard
from controller.records import StepLimits
from replicas.engine.governor import Governor
from tests.builders import ENGINE, batching, limits, state

OWN = StepLimits(ENGINE.max_num_seqs, ENGINE.max_num_batched_tokens)


class BrokenError(RuntimeError):
    """An unforeseen error."""


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
    monkeypatch.setattr(g.limiter, "limits", raises)


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


def test_where_control_is_off_it_stays_off(monkeypatch: pytest.MonkeyPatch) -> None:
    g = governor(batching(enforce=False))
    monkeypatch.setattr(g.limiter, "limits", raises)
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
    ],
)
def test_limits_that_are_none_are_an_error(wrong, monkeypatch):
    g = governor()
    held(g, monkeypatch)
    monkeypatch.setattr(g.limiter, "limits", lambda *args: wrong)
    assert g.before_step(state(running=5), 11.0) == StepLimits(30, 600)
    assert g._guard.errors == 1


def test_a_wrong_configuration_is_still_told() -> None:
    with pytest.raises(ConfigError, match=r"batching\.max_running\.max: 512"):
        governor().configure(batching(max_running={"max": 512}))


def test_a_law_that_fails_leaves_its_last_limits_and_goes_on_when_it_can(monkeypatch):
    g = governor(batching(policy="adaptive", sla={"itl_ms": 50}))
    g.apply(limits(max_running=30, lease_s=5.0), 10.0)
    monkeypatch.setattr("controller.policies.adaptive.Forecast", raises)
    assert [g.before_step(state(5), s).max_running for s in (14.9, 15.0, 15.6)] == [30] * 3
    assert g._guard.errors == 2  # once a period
    monkeypatch.undo()
    g.before_step(state(5), 16.2)
    assert g.report(state(5), 16.2, "r", "g").reason == "memory"
