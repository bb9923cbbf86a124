"""Which step an interval counts for, where a step is scheduled ahead."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.records import StepSample
from replicas.engine import intervals
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


def test_a_step_that_takes_the_card_longer_than_its_launch_is_counted_as_it_was() -> None:
    steps = [(0, ALONE_S), (300, 0.030), (0, ALONE_S)]
    assert counted(steps) == steps


def test_of_two_steps_with_prompts_the_larger_one_has_the_longer_interval() -> None:
    assert counted([(100, LAUNCHED_S), (600, REST_S)]) == [(100, REST_S), (600, LAUNCHED_S)]
    assert counted([(600, REST_S), (100, LAUNCHED_S)]) == [(600, REST_S), (100, LAUNCHED_S)]
    assert counted([(300, LAUNCHED_S), (300, REST_S)]) == [(300, LAUNCHED_S), (300, REST_S)]


def test_a_row_of_steps_beyond_the_graphs_has_the_intervals_of_their_launches() -> None:
    eager_s = 0.027
    steps = [(0, eager_s), (700, eager_s), (600, LAUNCHED_S), (300, REST_S), (0, ALONE_S)]
    assert counted(steps, graph_tokens=512) == [
        (0, LAUNCHED_S),
        (700, eager_s),
        (600, eager_s),
        (300, REST_S),
        (0, ALONE_S),
    ]
    on_card = [(0, ALONE_S), (2000, 0.050), (1900, 0.048), (0, ALONE_S)]
    assert counted(on_card, graph_tokens=512) == on_card


def test_no_step_of_a_long_row_waits_for_its_end() -> None:
    known = Intervals(graph_tokens=512)
    ahead = [ahead_of(700)]
    known.of(StepSample(1, 0, 0, 0, LAUNCHED_S), 0, ahead)
    told = [len(known.of(StepSample(1, 0, 700, 0, LAUNCHED_S), 1, ahead)) for _ in range(40)]
    assert sum(told) >= 40 - intervals.LONGEST_ROW


def test_what_clients_saw_is_told_beside_it() -> None:
    known, ahead = Intervals(), [ahead_of(300)]
    assert known.of(StepSample(32, 0, 0, 0, LAUNCHED_S), 0, ahead) == []
    (before, _), (launched, _) = known.of(StepSample(32, 0, 300, 0, REST_S), 1, [])
    assert (before.duration_s, before.seen_s) == (REST_S, LAUNCHED_S)
    assert (launched.duration_s, launched.seen_s) == (LAUNCHED_S, REST_S)


def test_only_the_step_that_comes_back_next_is_looked_at() -> None:
    two = [ahead_of(prompt) for prompt in (0, 300)]
    assert len(Intervals().of(StepSample(1, 0, 0, 0, ALONE_S), 0, two)) == 1
    same = [ahead_of(300)]
    assert len(Intervals().of(StepSample(1, 0, 300, 0, ALONE_S), 1, same)) == 1


def test_without_a_step_ahead_no_step_waits_to_be_counted() -> None:
    steps = [(0, LAUNCHED_S), (300, REST_S), (0, ALONE_S)]
    assert counted(steps, ahead=False) == steps


@given(
    st.lists(st.tuples(st.integers(0, 600), st.floats(1e-3, 1.0)), min_size=1, max_size=30),
    st.booleans(),
    st.sampled_from([0, 1, 300]),
)
def test_no_step_and_no_time_is_lost(steps, ahead, graph_tokens):
    found = counted(steps, ahead, graph_tokens)
    assert [prompt for prompt, _ in found] == [prompt for prompt, _ in steps]
    assert sorted(took_s for _, took_s in found) == sorted(took_s for _, took_s in steps)
