"""Steps that are larger than the CUDA graphs that were captured."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.models.chunked_prefill import Prompts
from controller.models.demand import Demand
from controller.models.online import OnlineStepModel, prefill_room
from controller.models.prompt_work import PromptWork
from controller.models.step_time import StepModel

GRAPH, EAGER_S = 512, 0.030
TRUE = StepModel(0.006, 1e-5, 0.0, 2e-5, 0.0, 0.0, mixed_s=0.002)
BEYOND = replace(TRUE, graph_tokens=GRAPH, eager_s=EAGER_S)


def learned(chunks: list[int], steps: int = 400) -> OnlineStepModel:
    """A model that has seen these chunks, in turn with decodes alone, beside 32 decodes."""
    online, rng = OnlineStepModel(TRUE), np.random.default_rng(0)
    online.captured(GRAPH)
    for k in range(steps):
        chunk = chunks[k // 2 % len(chunks)] if k % 2 else 0
        decodes = int(rng.integers(16, 48))
        online.learn(decodes, 0, chunk, 0, BEYOND.predict_s(decodes, 0, chunk, 0))
    return online


def test_what_the_launch_of_a_step_beyond_the_graphs_takes_is_learned() -> None:
    model = learned([100, 300, 700, 1500]).model
    assert model.eager_s == pytest.approx(EAGER_S, rel=0.02)
    assert model.costs == pytest.approx(TRUE.costs, rel=0.02, abs=1e-6)
    for chunk in (480, 481, 1000, 1200, 2000):
        assert model.predict_s(32, 0, chunk, 0) == pytest.approx(
            BEYOND.predict_s(32, 0, chunk, 0), rel=0.02
        )


def test_it_is_known_from_the_first_step_on() -> None:
    online = learned([300])
    assert online.model.eager_s == 0
    changed = online.learn(32, 0, 1000, 0, BEYOND.predict_s(32, 0, 1000, 0))
    assert online.model.eager_s == pytest.approx(EAGER_S, rel=0.05)
    assert not changed
    costs = online.model.costs
    assert costs == pytest.approx(TRUE.costs, rel=0.02, abs=1e-6)


def test_it_fades_while_no_step_goes_beyond_so_that_one_is_tried_again() -> None:
    online = learned([1000])
    before_s = online.model.eager_s
    for k in range(100_000):
        online.learn(32, 0, 300 * (k % 2), 0, TRUE.predict_s(32, 0, 300 * (k % 2), 0))
    assert online.model.eager_s < before_s / 2
    assert online.model.costs == pytest.approx(TRUE.costs, rel=0.02, abs=1e-6)


def test_an_engine_without_graphs_learns_none() -> None:
    online = OnlineStepModel(TRUE)
    for k in range(100):
        online.learn(32, 0, 2000 * (k % 2), 0, BEYOND.predict_s(32, 0, 2000 * (k % 2), 0))
    assert online.model.eager_s == 0
    assert not online.model.eager(32, 10_000)


def test_a_chunk_ends_with_the_graphs_until_a_step_may_be_as_long_as_a_launch() -> None:
    fixed_s = BEYOND.predict_s(32, 0, 0, 0) + BEYOND.mixed_s
    edge_s = fixed_s + 480 * BEYOND.c3

    def room(limit_s: float, decodes: int = 32) -> float:
        return prefill_room(BEYOND, decodes, 0, 0, limit_s)

    assert room(edge_s - 0.001) == pytest.approx(480 - 50)
    assert room(edge_s + 0.001) == room(EAGER_S - 0.001) == 480
    assert room(EAGER_S) == pytest.approx((EAGER_S - fixed_s) / BEYOND.c3)
    assert room(0.050) == pytest.approx((0.050 - fixed_s) / BEYOND.c3)
    # So many decodes are beyond the graphs themselves: no prompt beside them is in time.
    assert room(EAGER_S - 0.001, 600) < 0


@given(st.integers(0, 700), st.floats(0.001, 0.2), st.floats(0, 0.05))
def test_no_chunk_is_predicted_to_end_late(decodes: int, limit_s: float, eager_s: float) -> None:
    model = replace(BEYOND, eager_s=eager_s)
    room = prefill_room(model, decodes, 0, 0, limit_s)
    if room >= 1:
        chunk = int(room)
        assert model.predict_s(decodes, 0, chunk, 0) <= limit_s * (1 + 1e-9)
        inside = chunk == room == model.graph_tokens - decodes
        assert inside or model.predict_s(decodes, 0, chunk + 1, 0) > limit_s * (1 - 1e-9)


def test_prompts_wait_for_the_steps_as_they_are_planned() -> None:
    tokens = np.array([256.0])
    within = Prompts(tokens, np.ones(1), 20.0, 2e-5, 0.002, 0.007)
    prompts = replace(within, graph_s=480 * 2e-5, eager_s=EAGER_S)
    edge_s = 0.009 + 480 * 2e-5
    s = np.array([0.012, edge_s, edge_s + 0.010, EAGER_S, 0.050])
    planned_s = prompts.steps(s).step_s
    assert planned_s == pytest.approx([0.012, edge_s, edge_s, EAGER_S, 0.050])
    assert within.steps(s).step_s == pytest.approx(s)
    wait_s = prompts.steps(s).wait_s(60.0)
    assert wait_s[1] == wait_s[2]  # the same steps
    # One prompt is within the graphs in any case.
    assert wait_s == pytest.approx(within.steps(planned_s).wait_s(60.0))


def test_a_long_prompt_that_comes_alone_takes_the_launches_of_its_steps() -> None:
    within = Prompts(np.array([600.0]), np.ones(1), 1e-3, 2e-5, 0.002, 0.007)
    prompts = replace(within, graph_s=480 * 2e-5, eager_s=EAGER_S)
    s = np.array([0.020, EAGER_S])
    more_s = prompts.steps(s).wait_s(60.0) - within.steps(
        np.array([0.009 + 480 * 2e-5, EAGER_S])
    ).wait_s(60.0)
    # In two steps it is within the graphs, in one of 21 ms it is beyond.
    assert more_s == pytest.approx([0.0, EAGER_S - 0.021], abs=1e-4)


def test_a_pause_in_the_first_step_beyond_does_not_keep_all_others_away() -> None:
    online = learned([300])
    online.learn(32, 0, 1000, 0, BEYOND.predict_s(32, 0, 1000, 0) + 2.0)
    for k in range(1000):
        online.learn(32, 0, 300 * (k % 2), 0, TRUE.predict_s(32, 0, 300 * (k % 2), 0))
    assert prefill_room(online.model, 32, 0, 0, 0.1) > 480


def test_noise_is_no_launch() -> None:
    online, rng = learned([300]), np.random.default_rng(1)
    for _ in range(400):
        took_s = TRUE.predict_s(32, 0, 1000, 0) * float(rng.normal(1, 0.1))
        online.learn(32, 0, 1000, 0, took_s)
    assert online.model.predict_s(32, 0, 1000, 0) == pytest.approx(
        TRUE.predict_s(32, 0, 1000, 0), rel=0.1
    )


def test_steps_of_decodes_alone_have_graphs_of_their_own() -> None:
    online = learned([300])
    for _ in range(600):
        online.learn(600, 0, 0, 0, 0.05)
    assert online.model.eager_s == 0


def test_steps_of_the_mean_batch_end_with_the_graphs() -> None:
    demand = Demand()
    for k in range(100):
        demand.observe(32, 256 * (k % 4 == 0), 0.01, [256] * (k % 4 == 0))
    work = PromptWork(BEYOND, demand, 0.0)
    prompts = work.prompts(demand.prefill_per_s)
    decodes = (prompts.decodes_s - BEYOND.c0) / BEYOND.c1
    assert prompts.eager_s == EAGER_S
    assert prompts.graph_s == pytest.approx((GRAPH - decodes) * BEYOND.c3)
    assert PromptWork(TRUE, demand, 0.0).prompts(100.0).graph_s == np.inf


def test_where_decodes_alone_fill_the_graphs_every_prompt_is_beyond_them() -> None:
    prompts = Prompts(np.array([256.0]), np.ones(1), 5.0, 2e-5, 0.002, 0.007, 0.0, EAGER_S)
    s = np.array([0.012, 0.05])
    with np.errstate(all="raise"):
        assert np.isfinite(prompts.steps(s).wait_s(60.0)).all()
        assert np.isfinite(prompts.steps(s).late_share(5.0, lambda t: np.zeros_like(t))).all()


def test_the_last_chunk_of_a_prompt_beyond_the_graphs_takes_a_launch_at_least() -> None:
    prompts = Prompts(np.array([600.0]), np.ones(1), 1.0, 2e-5, 0.002, 0.007, 480 * 2e-5, EAGER_S)
    asked: list[float] = []

    def late(step_s: np.ndarray) -> np.ndarray:
        asked.extend(np.ravel(step_s).tolist())
        return np.zeros_like(step_s)

    prompts.steps(np.array([0.060])).late_share(1.0, late)
    assert max(asked[1:]) == pytest.approx(EAGER_S)
