"""The load of one engine: rates over the last minute of its steps."""

from dataclasses import dataclass

from controller.models.arrays import Floats

MEMORY_S = 60.0  # of steps; also the time in which the queue is to be computed
TYPICAL_PROMPT = 256.0  # tokens, before any request was seen


@dataclass(frozen=True, slots=True)
class Demand:
    """Rates in busy time: seconds without a step do not count.

    Args:
        prompts: tokens to compute of the prompts that started last, shape (n,), n >= 1. Not of
            running requests: a batch has mostly short prompts with long answers, while most of the
            work may be long prompts with short answers.
        prefill_per_s: prompt tokens/s that steps computed, plus waiting ones over 60 s.
        decodes_per_prefill: generated tokens per computed prompt token.
    """

    prompts: Floats
    prefill_per_s: float
    decodes_per_prefill: float
