"""Classes in one engine, for any batch: who is left out of a step, and who may start."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controller.models.requests import Requests, requests_of
from controller.models.step_time import StepModel
from controller.policies.chunk import StepHistory
from controller.policies.class_chunks import (
    LONGEST_SKIP_S,
    UNPROMISED_SKIP_S,
    ClassChunks,
    SampleByClass,
)
from controller.request_slo import RequestSlo
from tests.property.strategies import examples

SLOS = (
    RequestSlo(0.05),
    RequestSlo(0.1, 95.0),
    RequestSlo(ttft_s=60.0),
    RequestSlo(0.3),
    RequestSlo(),
)
models = st.builds(
    StepModel,
    st.floats(1e-3, 0.06),
    st.floats(0, 1e-3),
    st.floats(0, 1e-6),
    st.floats(1e-6, 1e-3),
    st.just(0.0),
    st.just(0.0),
)
batches = st.lists(
    st.tuples(
        st.integers(0, 4),  # agreement
        st.booleans(),  # decodes
        st.integers(1, 5000),  # computed
        st.floats(0, 2),  # waited
    ),
    min_size=1,
    max_size=80,
)


def sizer(model: StepModel) -> ClassChunks:
    one = ClassChunks(0.05, StepHistory(0.05))
    one.history.receive(model)
    one.know(SLOS)
    return one


def requests(rows: list[tuple[int, bool, int, float]]) -> Requests:
    computed = [row[2] for row in rows]
    n = len(rows)
    numbers = np.array([row[0] for row in rows], dtype=np.int64)
    return requests_of(computed, computed, [1] * n, [500] * n, None, numbers)


@examples(1)
@given(models, batches, st.integers(0, 5000))
def test_nobody_is_left_out_who_is_strictest_or_has_no_time_to_spare(model, rows, wanted):
    one, batch = sizer(model), requests(rows)
    decoding = np.array([row[1] for row in rows])
    waited_s = np.array([row[3] for row in rows])
    out = one.skipped(batch, decoding, lambda: waited_s, lambda itl_s: wanted)
    assert not out[~decoding].any()
    if not out.any():
        return
    own_s = np.array([SLOS[row[0]].itl_s for row in rows])
    strictest_s = own_s[decoding].min()
    assert strictest_s < np.inf
    assert not out[own_s == strictest_s].any()
    unpromised = np.array([SLOS[row[0]].unpromised for row in rows])
    longest_s = np.where(unpromised, UNPROMISED_SKIP_S, LONGEST_SKIP_S)
    spare_s = np.where(own_s < np.inf, own_s, longest_s) - waited_s
    assert (spare_s[out] > 0).all()
    # Who is left out has more time than those of its size that run without having to.
    step_s = model.predict_s(*_features(batch, decoding & ~out), 0, 0)
    everybody_s = model.predict_s(*_features(batch, decoding), 0, 0)
    assert step_s <= everybody_s


def _features(batch: Requests, mask: np.ndarray) -> tuple[int, int]:
    return int(mask.sum()), int(batch.computed[mask].sum())


@examples(1)
@given(models, batches, batches)
def test_what_may_start_is_a_beginning_of_the_queue(model, rows, queue):
    one, running, candidates = sizer(model), requests(rows), requests(queue)
    n = one.starting(running, candidates)
    assert 0 <= n <= len(candidates)
    assert one.starting(running, candidates.first(n)) == n


@examples(1)
@given(
    models,
    st.lists(
        st.tuples(
            st.tuples(*[st.integers(0, 40)] * 4),
            st.integers(0, 2000),
            st.floats(1e-3, 5.0),
            st.lists(st.tuples(st.integers(0, 3), st.floats(0, 9)), max_size=3),
        ),
        max_size=80,
    ),
)
def test_chunks_stay_numbers_inside_the_engines_whatever_steps_took(model, steps):
    one = sizer(model)
    for tokens, prefill, step_s, longer in steps:
        decodes = sum(tokens)
        kinds = np.repeat(np.arange(4), tokens)
        one.decoding(kinds)
        chunk = one.chunk(decodes, 100 * decodes, 0, least=16, most=2048)
        assert 0 <= chunk <= 2048
        if not sum(tokens[k] for k in (0, 1, 3)):
            assert chunk == 2048
        kv = 100 * decodes
        sample = SampleByClass(decodes, kv, prefill, 0, step_s, 0, tokens, tuple(longer))
        one.observe(sample)
        assert all(0 <= frac <= 0.5 for frac in one._reserve_frac)
