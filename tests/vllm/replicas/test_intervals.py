"""Which step an interval counts for, where a step is scheduled ahead."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.records import StepSample
from replicas.engine.intervals import Intervals

LAUNCHED_S, REST_S, ALONE_S = 0.010, 0.004, 0.007


def ahead_of(prompt: int) -> Any:
    """A step that is scheduled, with so many prompt tokens."""
    return SimpleNamespace(sample=StepSample(1, 0, prompt, 0, 0.0))


def counted(
    steps: list[tuple[int, float]], ahead: bool = True, graph_tokens: int = 0
) -> list[tuple[int, float]]:
    """What comes out where these steps (prompt tokens, interval) run one after the other."""
    known, found = Intervals(graph_tokens), []
    for k, (prompt, took_s) in enumerate(steps):
        after = [ahead_of(steps[k + 1][0])] if steps[k + 1 :] and ahead else []
        for sample, prefills in known.of(StepSample(1, 0, prompt, 0, took_s), prompt, after):
            assert prefills == sample.prefill_tokens  # each step's own
            found.append((sample.prefill_tokens, sample.duration_s))
    return found


def test_the_step_before_waits_for_a_launch_and_is_not_counted_longer() -> None:
    steps = [(0, ALONE_S), (0, LAUNCHED_S), (300, REST_S), (0, ALONE_S)]
    assert counted(steps) == [(0, ALONE_S), (0, REST_S), (300, LAUNCHED_S), (0, ALONE_S)]


@given(
    st.lists(st.tuples(st.integers(0, 600), st.floats(1e-3, 1.0)), min_size=1, max_size=30),
    st.booleans(),
    st.sampled_from([0, 1, 300]),
)
def test_no_step_and_no_time_is_lost(steps, ahead, graph_tokens):
    found = counted(steps, ahead, graph_tokens)
    assert [prompt for prompt, _ in found] == [prompt for prompt, _ in steps]
    assert sorted(took_s for _, took_s in found) == sorted(took_s for _, took_s in steps)
