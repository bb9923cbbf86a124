"""What a deployment's ``user_config`` may change while engines run."""

from typing import Any

import pytest

from controller.errors import ConfigError
from replicas.settings import parse_live, slowed
from tests.builders import batching, engine, governor, limits, sample, state

ENTRYS = batching(policy="adaptive", sla={"itl_ms": 50})


def test_the_block_takes_the_place_of_the_entrys_own_and_is_stretched_as_that_was() -> None:
    changed = {"batching": {"policy": "adaptive", "sla": {"itl_ms": 80}}}
    assert parse_live(changed, ENTRYS, 1.0).sla.itl_ms == 80
    assert parse_live(changed, ENTRYS, 4.0).sla.itl_ms == 320
    assert parse_live({"batching": {}}, ENTRYS, 1.0) == batching(policy="adaptive")


@pytest.mark.parametrize("nothing", [None, {}, {"batching": None}])
def test_without_a_block_the_entrys_own_holds(nothing: Any) -> None:
    assert parse_live(nothing, slowed(ENTRYS, 4.0), 4.0).sla.itl_ms == 200


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"batchin": {}}, "user_config: unknown key 'batchin'; did you mean 'batching'?"),
        ({"batching": {"lease": 3}}, "user_config.batching: unknown key 'lease'; did you mean"),
        ({"batching": {"lease_s": 0}}, "user_config.batching.lease_s: 0 is not allowed"),
        ({"batching": 3}, "user_config.batching: 3 is not allowed"),
        ("batching", "user_config: 'batching' is not allowed"),
    ],
)
def test_what_is_wrong_is_named(wrong: Any, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_live(wrong, ENTRYS, 1.0)
    assert str(refused.value).startswith(said)


def test_a_governor_under_another_block_keeps_what_it_measured() -> None:
    g = governor(batching(policy="adaptive", sla={"itl_ms": 50}))
    g.apply(limits(max_running=7), 0.0)
    for k in range(120):
        b, p = 1 + k % 60, 50 * (k % 5)
        took_s = 0.02 + 2e-4 * b + 1e-4 * p
        g.after_step(sample(decodes=b, kv_tokens=0, prefill_tokens=p, duration_s=took_s), 0)
        g.finished(100, 50)
    before = g.report(state(), 1.0, "r", "g")
    g.configure(batching(policy="adaptive", sla={"itl_ms": 80}, enforce=False))
    after = g.report(state(), 1.0, "r", "g")
    for name in ("lengths", "steps", "itl", "outputs", "arrivals", "finished", "max_running"):
        assert getattr(after, name) == getattr(before, name), name
    assert g.config.sla.itl_ms == 80
    assert not after.enforced
    # What it measured is where the new step half starts from.
    assert g._step_half._chunks._time.model.c1 == pytest.approx(2e-4, rel=0.05)  # type: ignore[attr-defined]


def test_bounds_that_do_not_fit_change_nothing() -> None:
    g = governor(batching(policy="adaptive"), engine(max_num_seqs=64))
    with pytest.raises(ConfigError):
        g.configure(batching(policy="adaptive", max_running={"max": 65}))
    assert g.config.max_running.max is None


def test_a_switch_outlasts_another_block() -> None:
    from controller.switch import next_switch

    g = governor(batching(policy="static"))
    g.apply(limits(switches=(next_switch((), enforce=False, group=None, unix_s=1.0),)), 0.0)
    g.configure(batching(policy="static", max_running={"max": 4}))
    assert not g.enforced
