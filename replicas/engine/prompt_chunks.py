"""What one prompt takes of a step: the rules by which vLLM cuts prompts, and our part in them."""

from typing import Any

import vllm

from replicas.workarounds.vllm_private import number_of

PARTS_OF_BLOCKS = (0, 27)  # the first vLLM that cuts such prompts inside a block, too


class PromptChunks:
    """vLLM's ``long_prefill_token_threshold``, moved step by step if it decides something.

    Two of vLLM's rules go by it. Of a long prompt no more is computed in a step. And models with
    states compute prompts in whole blocks if prefixes are cached, unless a block is more than a
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
        parts = aligned and number_of(vllm.__version__) >= PARTS_OF_BLOCKS
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
