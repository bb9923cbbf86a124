"""What holds for every policy there is, whatever the telemetry says."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from controller.config import BatchingConfig
from controller.fleet.loop import ControlLoop
from controller.policies.registry import POLICIES
from controller.records import BatchLimits, StepLimits
from tests.builders import engine, governor, state
from tests.plant import Plant
from tests.property.strategies import (
    MAX_RUNNING,
    MAX_TOKENS,
    configs,
    examples,
    reports,
    tables,
    windows,
)

ALL = pytest.mark.parametrize("policy", sorted(POLICIES))
SEEKING = pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"static"}))


def check_decision(limits: BatchLimits, config: BatchingConfig) -> None:
    assert isinstance(limits.max_running, int)
    assert config.max_running.min <= limits.max_running <= config.upper_bound(MAX_RUNNING)
    if limits.token_budget is not None:
        assert isinstance(limits.token_budget, int)
        assert 0 < limits.token_budget <= MAX_TOKENS
    if limits.capacity_per_s is not None:
        assert 0 <= limits.capacity_per_s < math.inf


def check_step(step: StepLimits, running: int, tokens_per_decode: int) -> None:
    assert max(running, 1) <= step.max_running <= MAX_RUNNING
    least = running * tokens_per_decode + (not step.may_pause_prefill)
    assert min(least, MAX_TOKENS) <= step.token_budget <= MAX_TOKENS


@ALL
@examples(0.33)
@given(data=st.data())
def test_no_telemetry_and_no_lost_answer_takes_a_step_out_of_its_bounds(policy, data):
    config = data.draw(configs(policy))
    size = engine(tokens_per_decode=data.draw(st.integers(1, 5)))
    g = governor(config, size, leased=data.draw(st.booleans()))
    loop, now_s = ControlLoop(), 0.0
    for window in data.draw(windows):
        held = state(window.running, window.waiting, window.kv_used_tokens)
        batch, queue = data.draw(tables(window.running)), data.draw(tables(min(window.waiting, 64)))
        first = [(int(one), int(one) + 16) for one, *_ in queue.tolist()]
        for sample in window.samples:
            step = g.before_step(
                held, now_s, lambda n, first=first: first[:n], lambda b=batch, q=queue: (b, q)
            )
            check_step(step, window.running, size.tokens_per_decode)
            now_s += window.gap_s / len(window.samples)
            g.after_step(sample, prefills=window.running // 2)
        for pair in window.finished:
            g.finished(*pair)
        said = g.report(held, now_s, "r", "g", batch, queue)
        assert said.max_running <= config.upper_bound(MAX_RUNNING)  # the local fallback's too
        limits = loop.exchange(said, config, now_s)
        check_decision(limits, config)
        if window.answered:
            g.apply(limits, now_s)


@ALL
@examples(0.13)
@given(data=st.data())
def test_what_a_new_controller_pools_is_what_the_old_one_did(policy, data):
    config = data.draw(configs(policy))
    said = [
        replace(data.draw(reports()), replica_id=replica_id, seq=seq)
        for seq in (1, 2, 3)
        for replica_id in ("a", "b", "c")
    ]
    old, new = ControlLoop(), ControlLoop()
    for index, one in enumerate(said):
        old.exchange(one, config, now_s=index)
    for index, one in enumerate(said[-3:]):  # one report of each: all that a new one needs
        new.exchange(one, config, now_s=len(said) - 3 + index)
    pools = [loop.snapshot(10.0)["groups"]["g"]["pool"] for loop in (old, new)]
    assert pools[0].replicas == pools[1].replicas == 3
    assert pools[0].lengths == pools[1].lengths


@ALL
@examples(0.07)
@given(data=st.data())
def test_advice_alone_never_touches_an_engine(policy: str, data: st.DataObject) -> None:
    config = data.draw(configs(policy)).model_copy(update={"enforce": False})
    g, loop = governor(config), ControlLoop()
    for seq, window in enumerate(data.draw(windows), 1):
        held = state(window.running, window.waiting, window.kv_used_tokens)
        assert g.before_step(held, seq * 20.0) == StepLimits(MAX_RUNNING, MAX_TOKENS)
        for sample in window.samples:
            g.after_step(sample, prefills=0)
        said = g.report(held, seq * 20.0, "r", "g")
        g.apply(loop.exchange(said, config, seq * 20.0), seq * 20.0)


@ALL
@examples(0.05)
@given(
    demands=st.lists(st.integers(0, 40), min_size=5, max_size=20),
    memory=st.sampled_from(["linear", "exact", "live"]),
)
def test_a_load_that_fits_is_never_held_back(policy: str, demands: list[int], memory: str) -> None:
    # 40 requests take 28 ms of the 50 allowed and a fraction of the memory.
    block = {"policy": policy, "sla": {"itl_ms": 50}, "paper": {"memory": memory}}
    plant = Plant(BatchingConfig.model_validate(block), lambda b: 0.02 + 2e-4 * b)
    for demand in demands:
        cap = plant.window(demand).max_running
        assert cap >= min(demand, plant.running)
    for _ in range(20):
        plant.window(40)
    assert plant.running >= 39  # all of them, but for one that just ended
    said = plant.governor.report(state(plant.running), plant.now_s, "r", "g")
    assert (said.overruled, said.preemptions) == (0, 0)


@SEEKING
@examples(0.04)
@given(
    c0=st.floats(0.005, 0.03),
    c1=st.floats(1e-4, 1e-3),
    wanted=st.integers(24, 230),
    slower=st.floats(1.0, 2.0),
)
# The model's errors after the change were taken for noise, and 43% of the SLA was held back.
@example(c0=0.015625, c1=0.00018152403756370726, wanted=35, slower=2.0)
# Before the tail was known, one window that saw the change stood for it.
@example(c0=0.015625, c1=0.0009071408673651275, wanted=41, slower=2.0)
# The fit of a batch that hardly changes had c0 > D: the SLA was out of reach, and 202 ran for 42.
@example(c0=0.015625, c1=0.00027543495061251776, wanted=83, slower=2.0)
def test_under_full_load_the_batch_settles_where_it_meets_the_sla(
    policy: str, c0: float, c1: float, wanted: int, slower: float
) -> None:
    assume(c0 + c1 * wanted > 1.2 * (c0 + c1))  # else the SLA is out of reach (``IN_REACH``)
    block = {
        "policy": policy,
        "sla": {"itl_ms": (c0 + c1 * wanted) * 1000},
        # A dead band of one request's latency, so that "met" means this batch.
        "paper": {"memory": "exact", "alpha": 16, "epsilon_d_ms": c1 * 1000},
    }
    plant = Plant(BatchingConfig.model_validate(block), lambda b: c0 + c1 * b)
    for window in range(80):
        plant.window(1000)
        assert window < 70 or abs(plant.running - wanted) <= 16
    # The same machine, slower by the batch: the batch follows, down to what then meets the SLA.
    # 800 steps are remembered, and where the batch is far too large a window is no more than two.
    plant.step_s = lambda b: c0 + c1 * slower * b
    windows = max(80, round(1200 * plant.step_s(plant.running) / 0.5))
    for window in range(windows):
        plant.window(1000)
        assert window < windows - 10 or abs(plant.running - wanted / slower) <= 16
