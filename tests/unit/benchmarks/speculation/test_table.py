"""The table of drafts by batch size."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.speculation.table import DraftedSteps, table


def steps(
    fixed_s: float = 0.027, decode_s: float = 0.00023, row_s: float = 0.00012, **more: Any
) -> DraftedSteps:
    """T = 27 + 0.23 B + 0.12 P ms: arXiv 2503.05248, figure 3."""

    def step_s(decodes: float, kv: float, prefill: float, context: float) -> float:
        return fixed_s + decode_s * decodes + row_s * prefill

    return DraftedSteps(step_s, **{"acceptance": 0.7, **more})


def test_a_batch_verifies_a_row_for_each_draft_and_its_prompts_come_with_its_tokens() -> None:
    one = steps(draft_s=0.001, prompts_per_token=4.0)
    assert one.tokens(2) == pytest.approx(1 + 0.7 + 0.49)
    rows = 10 * 2 + 10 * 2.19 * 4
    assert one.took_s(10, 2) == pytest.approx(0.027 + 0.0023 + 0.00012 * rows + 2 * 0.001)
    assert one.tokens_per_s(2, 10)[9] == pytest.approx(21.9 / one.took_s(10, 2))


def test_few_requests_draft_most_and_more_draft_less() -> None:
    found = table(steps(draft_s=0.001), 256)
    assert found[0][0] == 1 and found[-1][1] == 256
    assert found[0][2] == 5 > found[-1][2] > 0


@pytest.mark.parametrize(
    ("acceptance", "draft_s", "drafts"), [(0.0, 0.001, 0), (1.0, 0.0, 5), (0.02, 0.001, 0)]
)
def test_drafts_that_are_never_accepted_are_not_made(
    acceptance: float, draft_s: float, drafts: int
) -> None:
    assert table(steps(acceptance=acceptance, draft_s=draft_s), 8) == [(1, 8, drafts)]


def test_a_full_batch_of_an_engine_that_computes_all_the_time_drafts_nothing() -> None:
    # Every row costs the same: drafts of which some are in vain cost more than they bring.
    found = table(steps(fixed_s=0.002, decode_s=0.0002, row_s=0.0002), 512)
    assert found[0][2] > 0
    assert found[-1][2] == 0


def test_a_step_that_ends_after_d_makes_prompts_wait() -> None:
    held = steps(draft_s=0.001, prompts_per_token=4.0, itl_s=0.05)
    fits = held.tokens_per_s(3, 40)
    batch = next(n for n in range(1, 41) if held.took_s(n, 3) > 0.05)
    assert len(set(np.round(fits[batch - 1 :], 6))) == 1  # as many as fit
    assert fits[batch - 2] <= fits[-1] < replace(held, itl_s=0.06).tokens_per_s(3, 40)[-1]
    assert table(held, 256)[-1][2] < table(replace(held, itl_s=None), 256)[-1][2]


def test_an_sla_out_of_reach_drafts_nothing() -> None:
    assert table(steps(itl_s=0.02), 64) == [(1, 64, 0)]


@given(
    acceptance=st.floats(0, 1),
    draft_s=st.floats(0, 0.01),
    row_s=st.floats(1e-6, 1e-3),
    prompts=st.floats(0, 20),
    itl_s=st.none() | st.floats(0.001, 1),
    largest=st.integers(1, 64),
    most=st.integers(1, 6),
)
def test_every_batch_has_a_number_and_no_larger_batch_a_larger_one(
    acceptance: float,
    draft_s: float,
    row_s: float,
    prompts: float,
    itl_s: float | None,
    largest: int,
    most: int,
) -> None:
    one = steps(
        row_s=row_s, acceptance=acceptance, draft_s=draft_s, prompts_per_token=prompts,
        itl_s=itl_s,
    )  # fmt: skip
    found = table(one, largest, most)
    assert found[0][0] == 1 and found[-1][1] == largest
    for (_, end, drafts), (begin, _, fewer) in pairwise(found):
        assert begin == end + 1
        assert drafts > fewer
    assert all(0 <= drafts <= most for _, _, drafts in found)
