"""What a batch holds of KV memory now, and how it goes on, number by number."""

import numpy as np
import pytest

from controller.models.batch_memory import KvMemory
from controller.models.lookahead import SurvivalTable, forecast, forecast_leading
from controller.models.requests import Requests, requests_of
from controller.models.survival import BINS, Exposure, Survival, length_bin

MEMORY = KvMemory(10_000, 16)
COUNTS = np.bincount([length_bin(length) for length in range(1, 400, 3)], minlength=BINS)
OUTLOOK = SurvivalTable(Survival(Exposure.of_finished(COUNTS)), 400)


def rows(
    n: int, prompt: int = 90, outputs: int = 10, most: int = 4000, shared: int = 0
) -> Requests:
    """n alike, of which all is computed."""
    computed = prompt + outputs
    return requests_of([computed] * n, [prompt] * n, [outputs] * n, [most] * n, [shared] * n)


@pytest.mark.parametrize(
    ("shared", "used", "frac", "common"),
    [
        # Less in use than four of 100 hold, and half a block each: the rest is not kept.
        (0, 0, 1.0, 0.0),  # not measured
        (0, 1, 1 / 432, 0.0),
        (0, 216, 0.5, 0.0),  # windows of attention
        (0, 432, 1.0, 0.0),
        # More than the 40 that each holds alone: prefixes, shared by two at least.
        (60, 192, 1.0, 0.0),
        (60, 252, 1.0, 60.0),  # one for all four
        (60, 312, 1.0, 120.0),  # two of them
        (60, 1000, 1.0, 120.0),  # the rest is not theirs
    ],
)
def test_what_is_in_use_says_what_is_kept_and_what_is_shared(shared, used, frac, common):
    assert MEMORY.kept(rows(4, shared=shared), used) == (frac, common)
    assert KvMemory(10_000, 5).kept(rows(1), 102) == (1.0, 0.0)  # half an odd block: rounded down


def test_the_forecast_begins_with_what_is_held_and_adds_the_candidates_one_by_one() -> None:
    running, candidates = rows(4, shared=60), rows(3, prompt=30, outputs=0)
    # 40 each alone and half a block, a prefix of 60, and 500 of requests that do not run.
    batch = MEMORY.with_candidates(
        MEMORY.running_only(OUTLOOK, running, 192 + 60 + 500, 500), candidates
    )
    assert batch.running.held == 4 * (40 + 16) + 60 + 500
    assert batch.holds.tolist() == batch.recomputed.tolist() == [46.0] * 3
    assert batch.running.not_running == 500
    base = forecast(running, OUTLOOK, block_tokens=16).with_prefixes(60.0, 240)
    first_ones = forecast_leading(candidates, OUTLOOK, block_tokens=16)
    assert np.array_equal(batch.running.base.mean, base.mean)
    assert np.array_equal(batch.together.mean, base.mean + first_ones.mean)


def test_of_windows_of_attention_only_a_part_is_held_but_all_is_computed_again() -> None:
    batch = MEMORY.with_candidates(
        MEMORY.running_only(OUTLOOK, rows(4), 216, 0), rows(2, prompt=30, outputs=0)
    )
    assert batch.running.held == 4 * (50 + 16)
    assert batch.holds.tolist() == [15.0 + 16] * 2
    assert batch.recomputed.tolist() == [30.0 + 16] * 2


@pytest.mark.parametrize(("tokens", "room"), [(896, True), (895, False)])
def test_there_is_room_for_all_where_whole_blocks_of_the_most_they_may_hold_fit(tokens, room):
    # Four of 40 alone and 50 more, a prefix of 60, two of 30 and 20 more, 280 of others, 6 blocks.
    running, candidates = rows(4, most=60, shared=60), rows(2, prompt=30, outputs=0, most=20)
    memory, most = KvMemory(tokens, 16), running.most(999) + candidates.most(999)
    assert memory.has_room_for_all(running, candidates, most, 192 + 60 + 280, 280) is room
