"""vLLM's threshold for long prompts, moved; and decodes before prompts in its running list."""

from types import SimpleNamespace
from typing import Any

import pytest

from controller.models.requests import requests_of
from replicas.engine.prompt_chunks import PromptChunks, as_they_stood, decodes_first


class PlainScheduler:
    """What is asked of vLLM's scheduler."""

    def __init__(self, threshold: int = 0, drafts: int = 0, aligned: bool = False) -> None:
        self.scheduler_config = SimpleNamespace(long_prefill_token_threshold=threshold)
        self.cache_config = SimpleNamespace(block_size=528)
        self.num_spec_tokens = drafts
        self.need_mamba_block_aligned_split = aligned


def limited(scheduler: Any, longest: int | None) -> int:
    PromptChunks(scheduler).limit(longest)
    return int(scheduler.scheduler_config.long_prefill_token_threshold)


@pytest.mark.parametrize(
    ("longest", "threshold"), [(40, 40), (100, 64), (64, 64), (0, 1), (None, 64)]
)
def test_a_threshold_is_lowered_and_never_raised(longest: int | None, threshold: int) -> None:
    assert limited(PlainScheduler(64), longest) == threshold


def test_it_holds_for_decodes_too_and_leaves_them_their_drafts() -> None:
    assert limited(PlainScheduler(64, drafts=3), 0) == 4
    assert limited(PlainScheduler(64, drafts=3), 5) == 5


def test_where_none_is_set_and_no_block_asks_for_one_none_is() -> None:
    assert limited(PlainScheduler(), 40) == 0


def ordered(lefts: list[int], tokens_per_decode: int = 1) -> list[int]:
    """The running list by what each has left to compute, in its new order."""
    running = list(range(len(lefts)))
    prompts = [100] * len(lefts)
    computed = [100 - left for left in lefts]
    nothing = [0] * len(lefts)
    decodes_first(
        running, requests_of(computed, prompts, nothing, [9] * len(lefts)), tokens_per_decode
    )
    return [lefts[index] for index in running]


@pytest.mark.parametrize(
    ("lefts", "order"),
    [
        ([50, 1, 60, 1], [1, 1, 50, 60]),
        ([1, 50, 1], [1, 1, 50]),
        ([1, 1, 50, 60], [1, 1, 50, 60]),
        ([50, 60], [50, 60]),
        ([1, 0, 1], [1, 0, 1]),
        ([2, 1], [1, 2]),
    ],
)
def test_those_that_decode_come_first_each_in_their_order(lefts, order):
    assert ordered(lefts) == order


def test_drafts_are_no_prompt() -> None:
    assert ordered([4, 5, 1, 4], tokens_per_decode=4) == [4, 1, 4, 5]


def test_after_the_step_they_stand_as_they_did_and_those_that_started_come_last() -> None:
    before, running = list("LaPbc"), list("abcLxy")  # P was preempted, x and y started
    as_they_stood(running, before)
    assert running == list("Labcxy")
    as_they_stood(running, None)
    assert running == list("Labcxy")


def test_what_was_moved_is_told() -> None:
    batch = requests_of([50, 99], [100, 100], [0, 0], [9, 9])
    assert decodes_first(running := ["prompt", "decode"], batch, 1) == ["prompt", "decode"]
    assert running == ["decode", "prompt"]
    assert decodes_first([], requests_of([], [], [], []), 1) is None
    in_order = requests_of([99, 50], [100, 100], [0, 0], [9, 9])
    assert decodes_first(["decode", "prompt"], in_order, 1) is None
