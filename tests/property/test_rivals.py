"""What holds for every named rival, whatever runs and waits."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.options import (
    RIVALS,
    NewTokenRatioOptions,
    PastFutureOptions,
    PpasOptions,
    QoserveOptions,
    RivalOptions,
)
from benchmarks.baselines.registry import make_rival
from benchmarks.baselines.rival import Moves, Seen, kept
from controller.records import StepSample
from tests.property.strategies import examples
from tests.rivals import ENGINE, Case, known, seen

ALL: list[RivalOptions] = [
    *(options() for options in RIVALS.values()),
    PpasOptions(budget_cap=1, large_prefill_tokens=50),
    QoserveOptions(slack="gaps", least_tokens=1, token_step=16, ttft_s=0.1),
    PastFutureOptions(lengths="average"),
    PastFutureOptions(lengths="average", busy_frac=0),
    NewTokenRatioOptions(newcomers="ratio", first=1.0),
]

times = st.floats(0, 5)


@st.composite
def cases(draw: st.DrawFn, waits: bool) -> Case:
    """One request: of a waiting one nothing is computed, but it may have been preempted."""
    prompt, generated = draw(st.integers(1, 5000)), draw(st.integers(0, 500))
    computed = 0 if waits else draw(st.integers(0, prompt + generated))
    allowed = draw(st.integers(max(generated, 1), 4096))
    arrival_s, first_s, last_s = sorted(draw(st.tuples(times, times, times)))
    if not generated:
        first_s = last_s = math.nan
    return Case(prompt, generated, computed, allowed, arrival_s, first_s, last_s)


views = st.builds(
    lambda running, waiting, free, later_s: seen(running, waiting, now_s=5 + later_s, free=free),
    st.lists(cases(waits=False), max_size=ENGINE.max_num_seqs),
    st.lists(cases(waits=True), max_size=20),
    st.integers(0, ENGINE.kv_tokens),
    st.floats(0, 100),
).filter(lambda view: len(view.running) + view.waiting > 0)


def check(moves: Moves, view: Seen) -> None:
    engine, running = view.engine, len(view.running)
    assert isinstance(moves.budget, int) and 1 <= moves.budget <= engine.max_num_batched_tokens
    assert isinstance(moves.starts, int) and 0 <= moves.starts <= view.waiting
    assert running + moves.starts <= engine.max_num_seqs
    if moves.running is not None:
        assert len(set(moves.running)) == len(moves.running)
        assert set(moves.running) <= set(range(running))
    if moves.waiting is not None:
        assert sorted(moves.waiting) == list(range(view.waiting))
    assert moves.longest_chunk is None or 1 <= moves.longest_chunk <= moves.budget
    # Some request gets on: one that runs and is served, or one that starts.
    served = running if moves.running is None else len(moves.running)
    assert served + moves.starts >= 1


@pytest.mark.parametrize("options", ALL, ids=lambda options: type(options).__name__)
@examples(0.2)
@given(
    some=st.lists(views, min_size=1, max_size=4),
    itl_s=st.none() | st.floats(0.001, 1),
    ended=st.lists(st.integers(1, 5000), max_size=4),
    step_s=st.floats(1e-4, 10),
)
def test_a_rival_keeps_to_the_engine_and_somebody_gets_on(options, some, itl_s, ended, step_s):
    rival = make_rival(options, known(itl_s))
    for view in some:
        check(kept(rival.decide(view), view), view)
        rival.observe(StepSample(3, 100, 50, 1250, step_s), len(view.running), view.now_s)
        for output_tokens in ended:
            rival.finished(output_tokens)
        rival.preempted()
