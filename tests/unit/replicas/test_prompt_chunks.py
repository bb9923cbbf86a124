"""vLLM's threshold for long prompts, moved; and decodes before prompts in its running list."""

from types import SimpleNamespace
from typing import Any

import pytest

from replicas.engine.batch_counts import as_they_stood, decodes_first
from replicas.engine.prompt_chunks import PromptChunks


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


def test_after_the_step_they_stand_as_they_did_and_those_that_started_come_last() -> None:
    before, running = list("LaPbc"), list("abcLxy")  # P was preempted, x and y started
    as_they_stood(running, before)
    assert running == list("Labcxy")
    as_they_stood(running, None)
    assert running == list("Labcxy")


@pytest.mark.parametrize(
    ("running", "prompts", "order"),
    [
        ("PdQe", "PQ", "dePQ"),
        ("dPe", "P", "deP"),
        ("dePQ", "PQ", None),
        ("QdP", "PQ", "dQP"),
        ("deQP", "PQ", None),
        ("PQ", "PQ", None),
        ("de", "", None),
        ("", "", None),
    ],
)
def test_those_that_decode_come_first_each_in_their_order(running, prompts, order):
    moved = list(running)
    before = decodes_first(moved, list(prompts))
    assert before == (None if order is None else list(running))
    assert moved == list(order or running)
