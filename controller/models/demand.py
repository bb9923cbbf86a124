"""What one engine is asked for and gives: rates over the last minute of its steps."""

from dataclasses import dataclass

from controller.models.arrays import Floats

MEMORY_S = 60.0  # of steps; what waits is to be computed in as long
TYPICAL_PROMPT = 256.0  # tokens, before any request was seen


@dataclass(frozen=True, slots=True)
class Demand:
    """Rates in busy time: a second without a step is none.

    Args:
        prompts: tokens to compute of the prompts that started last, shape (n,), n >= 1. Not of
            those that run: short prompts with long answers are most of a batch, and long prompts
            with short answers most of the work.
        prefill_per_s: prompt tokens/s that steps computed, and those that wait over 60 s.
        decodes_per_prefill: tokens generated for each prompt token computed.
    """

    prompts: Floats
    prefill_per_s: float
    decodes_per_prefill: float
