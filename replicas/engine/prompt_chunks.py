"""The longest chunk of one prompt in a step: vLLM's rules, and how they are adjusted."""

from typing import Any

import vllm

from replicas.workarounds.vllm_private import number_of

PARTS_OF_BLOCKS = (0, 27)  # the first vLLM that also cuts such prompts inside a block


class PromptChunks:
    """Adjusts vLLM's ``long_prefill_token_threshold`` step by step, if it has an effect.

    vLLM uses it in two rules. It bounds the tokens of a long prompt in a step. And models with
    states, if prefixes are cached, compute prompts in whole blocks unless a block is larger than
    the threshold: then in parts of a block. That rule also reads ``max_num_scheduled_tokens``,
    which includes decodes and does not bound a prompt.

    Args:
        scheduler: vLLM's.

    Attributes:
        threshold: as configured; 0: none.
        whole: prompts are computed in multiples of this (vLLM before 0.27); 0: in parts of a block
            as well.
    """

    def __init__(self, scheduler: Any) -> None:
        self._config = scheduler.scheduler_config
        self.threshold = int(self._config.long_prefill_token_threshold)
        self._least = 1 + scheduler.num_spec_tokens  # it bounds decodes, too
        aligned = scheduler.need_mamba_block_aligned_split
        parts = aligned and number_of(vllm.__version__) >= PARTS_OF_BLOCKS
        self._moves, self._moved = bool(self.threshold) or parts, False
        self.whole = scheduler.cache_config.block_size if aligned and not parts else 0

    def limit(self, longest_tokens: int | None, *, always: bool = False) -> None:
        """Set the longest chunk of one prompt in the next step; None: as configured.

        Args:
            always: also in an engine that was started without a threshold.
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
