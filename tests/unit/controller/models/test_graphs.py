"""Steps that are larger than the CUDA graphs that were captured."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.models.chunked_prefill import Prompts
from controller.models.demand import Demand
from controller.models.prompt_work import PromptWork
from controller.models.step_time import StepModel
from replicas.engine.limiter import prompt_room

GRAPH, EAGER_S = 512, 0.030
TRUE = StepModel(0.006, 1e-5, 0.0, 2e-5, 0.0, 0.0, mixed_s=0.002)
BEYOND = replace(TRUE, graph_tokens=GRAPH, eager_s=EAGER_S)


def test_a_chunk_ends_with_the_graphs_until_a_step_may_be_as_long_as_a_launch() -> None:
    fixed_s = BEYOND.predict_s(32, 0, 0, 0) + BEYOND.mixed_s
    edge_s = fixed_s + 480 * BEYOND.c3

    def room(limit_s: float, decodes: int = 32) -> float:
        return prompt_room(BEYOND, decodes, 0, 0, limit_s)

    assert room(edge_s - 0.001) == pytest.approx(480 - 50)
    assert room(edge_s + 0.001) == room(EAGER_S - 0.001) == 480
    assert room(EAGER_S) == pytest.approx((EAGER_S - fixed_s) / BEYOND.c3)
    assert room(0.050) == pytest.approx((0.050 - fixed_s) / BEYOND.c3)
    # So many decodes are beyond the graphs themselves: no prompt beside them is in time.
    assert room(EAGER_S - 0.001, 600) < 0


@given(st.integers(0, 700), st.floats(0.001, 0.2), st.floats(0, 0.05))
def test_no_chunk_is_predicted_to_end_late(decodes: int, limit_s: float, eager_s: float) -> None:
    model = replace(BEYOND, eager_s=eager_s)
    room = prompt_room(model, decodes, 0, 0, limit_s)
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


def test_steps_of_the_mean_batch_end_with_the_graphs() -> None:
    demand = Demand(np.array([256.0]), 6400.0, 0.5)  # of steps of 10 ms with 32 decodes
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
