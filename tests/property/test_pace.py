"""Paced delivery, for any batch."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controller.models.pace import LEAST, DeadlineSlack, Pace, Remaining
from replicas.engine.pacing import Pacing
from tests.property.strategies import examples

D = 0.05
some_leads = st.lists(
    st.tuples(st.floats(-5, 20), st.integers(1, 4000)), min_size=1, max_size=64
).map(
    lambda pairs: DeadlineSlack(
        np.array([p[0] for p in pairs]), np.array([float(p[1]) for p in pairs])
    )
)
left = st.floats(1, 4000).map(
    lambda tokens: Remaining(np.array([0.0, 4000.0]), np.array([tokens, tokens]), lambda _: 100.0)
)


@examples(0.5)
@given(some_leads, left, st.floats(-500, 5000))
def test_without_a_ttft_no_more_are_made_late_than_the_account_covers(leads, remaining, tokens):
    pace = Pace(D, 99.0)
    pace.budget.tokens = tokens
    extra_s = pace.extra_s(leads, remaining)
    assert extra_s >= LEAST * D
    newly = (leads.slack_s < extra_s) & (leads.slack_s >= 0)
    if extra_s > 0 and newly.any():
        assert remaining.of(leads.generated[newly]).sum() <= max(tokens, 0) * (1 + 1e-9)


@examples(0.5)
@given(some_leads, left, st.lists(st.tuples(st.integers(1, 200), st.floats(0, 1))))
def test_a_step_is_never_asked_for_that_is_no_number(leads, remaining, seen):
    pace = Pace(D, 99.0, 2.0)
    for decodes, late in seen:
        pace.observe(decodes, int(decodes * late), late - 0.5)
    assert np.isfinite(pace.extra_s(leads, remaining))
    assert pace.extra_s(leads, None) <= max(float(leads.slack_s.max()), LEAST * D) + 1e-9


@examples(0.5)
@given(st.lists(st.tuples(st.sampled_from("nslg"), st.floats(0.001, 0.3)), max_size=60))
def test_the_columns_say_what_counting_one_by_one_says(events: list[tuple[str, float]]) -> None:
    """n: one more has its first token; s: a step; l: the oldest is preempted; g: it is gone."""
    pacing, now_s = Pacing(D, 1.0), 0.0
    known: dict[str, tuple[float, int]] = {}
    for number, (event, by_s) in enumerate(events):
        now_s += by_s
        if event == "n":
            pacing.first_token(str(number), 0.4, now_s)
            known[str(number)] = now_s + 0.6, 1
        elif event == "s":
            known = {k: (begin_s, n + 1) for k, (begin_s, n) in known.items()}
            late = sum(now_s > b + (n - 1) * D + 1e-6 for b, n in known.values())
            surely = sum(now_s > b + (n - 1) * D - 1e-6 for b, n in known.values())
            assert late <= pacing.stepped(now_s) <= surely
        elif known:
            oldest = next(iter(known))
            del known[oldest]
            (pacing.leave if event == "l" else pacing.gone)(oldest)
        found = pacing.slack(now_s, 0)
        expected = sorted(b + (n - 1) * D - now_s for b, n in known.values())
        assert np.allclose(np.sort(found.slack_s), expected)
        assert sorted(found.generated) == sorted(n for _, n in known.values())
