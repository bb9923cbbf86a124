"""What one prompt takes of a step: the rules by which vLLM cuts prompts, and our part in them."""

from typing import Any

from controller.models.requests import Requests


class PromptChunks:
    """vLLM's ``long_prefill_token_threshold``, moved step by step where it decides something.

    Two of vLLM's rules go by it. Of a long prompt no more is computed in a step. And models with
    states compute prompts in whole blocks where prefixes are cached, unless a block is more than a
    prompt may take: then in parts of one. ``max_num_scheduled_tokens``, the other number that this
    rule looks at, has the decodes in it and does not say what a prompt may take.

    Args:
        scheduler: vLLM's.

    Attributes:
        threshold: as the engine was started; 0: none.
        whole: prompts are computed in multiples of this and nothing can be done about it (vLLM
            before it knew parts of blocks); 0: in parts, too.
    """

    def __init__(self, scheduler: Any) -> None:
        self._config = scheduler.scheduler_config
        self.threshold = int(self._config.long_prefill_token_threshold)
        self._least = 1 + scheduler.num_spec_tokens  # it holds for decodes, too
        aligned = scheduler.need_mamba_block_aligned_split
        parts = aligned and _parts_of_blocks(type(scheduler))
        self._moves, self._moved = bool(self.threshold) or parts, False
        self.whole = scheduler.cache_config.block_size if aligned and not parts else 0

    def limit(self, longest_tokens: int | None, *, always: bool = False) -> None:
        """Longest chunk of one prompt in the next step; None: as the engine was started.

        Args:
            always: in an engine that was started without such a limit, too.
        """
        if not self._moves and not always:
            if self._moved:
                self._config.long_prefill_token_threshold, self._moved = self.threshold, False
            return
        self._moved, threshold = True, self.threshold
        if longest_tokens is not None:
            threshold = min(threshold or longest_tokens, longest_tokens)
            threshold = max(threshold, self._least)
        self._config.long_prefill_token_threshold = threshold


def _parts_of_blocks(scheduler_cls: Any) -> bool:
    split: Any = scheduler_cls._mamba_block_aligned_split
    return "long_prefill_token_threshold" in split.__code__.co_names


def decodes_first(running: list[Any], batch: Requests, tokens_per_decode: int) -> list[Any] | None:
    """Put those that decode before those in prefill, each in their order, for one step.

    vLLM serves the running ones in order: a long prompt takes all that is left of a step's tokens,
    and the decodes behind it get none.

    Args:
        running: vLLM's list, of which ``batch`` has the token counts.

    Returns:
        The list as it was, for ``as_they_stood``; None where nothing was moved.
    """
    if not len(batch):
        return None
    prefilling = batch.tokens - batch.computed > tokens_per_decode
    first = int(prefilling.argmax())
    if not prefilling[first] or prefilling[first:].all():
        return None
    before, marks = list(running), prefilling.tolist()
    decodes = [r for r, prompt in zip(running, marks, strict=True) if not prompt]
    running[:] = decodes + [r for r, prompt in zip(running, marks, strict=True) if prompt]
    return before


def as_they_stood(running: list[Any], before: list[Any] | None) -> None:
    """Once a step is scheduled, take the order of before it; requests that started come last.

    vLLM preempts the last of its list. Without this, long prompts would always be last, and they
    are the costliest to recompute.
    """
    if before is None:
        return
    here, known = set(running), set(before)
    running[:] = [r for r in before if r in here] + [r for r in running if r not in known]
