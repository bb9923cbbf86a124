"""The constants of the named rivals, as ``--policy NAME:key=value`` sets them.

Defaults are those of their sources; ``benchmarks/baselines`` has the formulas, one rival a file.
The limits of the engine (``max_num_seqs``, ``max_num_batched_tokens``) are not among them.
"""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from controller.config import Block


class SarathiOptions(Block):
    """Sarathi's static chunk: the engine's own two limits are all its constants."""


class RefinerOptions(Block):
    """The budget refiner of vllm-ascend.

    Args:
        slo_frac: the SLO that the table is read at, in shares of the SLA's time between tokens.
        context_step, decodes_step: rows of the table: multiples of so many tokens of mean context
            and of so many decodes, each as far as four steps, then doubling.
        chunk_step: columns: budgets in multiples of so many tokens.
    """

    slo_frac: PositiveFloat = 1.0
    context_step: PositiveInt = 256
    decodes_step: PositiveInt = 8
    chunk_step: PositiveInt = 16


class QoserveOptions(Block):
    """QoServe (Niyama).

    Args:
        margin: predicted step times are multiplied by it.
        ms_per_token: alpha of hybrid prioritization: a remaining prompt token puts a deadline off.
        ttft_s: TTFT target if the SLA has none.
        itl_frac: the time per token that is scheduled for, in shares of the SLA's.
        slack: paced: token i is due at arrival + max(TTFT agreed, TTFT) + i x ITL, as in the
            source; gaps: one ITL after the token before, for an SLA of every gap.
        least_tokens, token_step: budgets are the first, the multiples of the second up to 2,048
            above it, and 2,552.
        low_memory_tokens: with fewer free in KV memory, budgets go up to 512 tokens.
    """

    margin: PositiveFloat = 1.2
    ms_per_token: NonNegativeFloat = 8.0
    ttft_s: PositiveFloat = 6.0
    itl_frac: PositiveFloat = 1.0
    slack: Literal["paced", "gaps"] = "paced"
    least_tokens: PositiveInt = 128
    token_step: PositiveInt = 256
    low_memory_tokens: NonNegativeInt = 32_000


class DeadlineOptions(Block):
    """What the rules of FairBatching and SLOs-Serve have in common.

    Args:
        margin: predicted step times are multiplied by it.
        ttft_s: time to first token that is agreed, where the SLA has none.
        slack: paced: token i is due at arrival + TTFT agreed + i x ITL, as in the sources; gaps:
            one ITL after the token before, for an SLA of every gap.
        model: linear: step times by a + b new tokens + c context tokens, as in the sources, fitted
            to the profile; profile: without error.
    """

    margin: PositiveFloat = 1.0
    ttft_s: PositiveFloat = 2.0
    slack: Literal["paced", "gaps"] = "paced"
    model: Literal["linear", "profile"] = "linear"


class FairBatchingOptions(DeadlineOptions):
    """FairBatching.

    Args:
        urgent_itls: a decode is urgent if its slack exceeds the step by fewer ITLs.
    """

    urgent_itls: NonNegativeFloat = 1.0


class SlosServeOptions(DeadlineOptions):
    """SLOs-Serve.

    Args:
        reserved_tokens: of what an admitted request may generate, so much KV memory is set aside.
    """

    reserved_tokens: NonNegativeInt = 500


class PastFutureOptions(Block):
    """LightLLM's Past-Future scheduler.

    Args:
        lengths: distribution: outputs are drawn from those of the last requests; average: the
            moving average of the outputs, as it is shipped.
        reserved_frac: share of KV memory that is never planned for (distribution).
        window: how many outputs are remembered (distribution).
        draws, most_lists: batches are forecast from at least so many draws in at most so many
            lists, and the worst counts (distribution).
        first_guess: tokens; half the window is filled with it to begin with (distribution).
        busy_frac: with more of the KV memory used, every request counts with all that it may
            generate (average).
        added_tokens: added to what each has left.
    """

    lengths: Literal["distribution", "average"] = "distribution"
    reserved_frac: float = Field(0.05, ge=0, lt=1)
    window: PositiveInt = 200
    draws: PositiveInt = 200
    most_lists: PositiveInt = 5
    first_guess: PositiveInt = 1024
    busy_frac: float = Field(0.85, ge=0, le=1)
    added_tokens: NonNegativeInt = 6


class NewTokenRatioOptions(Block):
    """SGLang's new-token ratio.

    Args:
        first: the ratio to begin with.
        least_frac: the least ratio, in shares of ``first``.
        decay_steps: steps from the one to the other.
        retract_steps: steps for which a batch has memory after a retraction.
        most_new_tokens: of what a request may generate, no more than this is looked at.
        newcomers: whole: who starts reserves all that it may generate in that step, as in the
            source; ratio: as the running ones do.
    """

    first: float = Field(0.7, gt=0, le=1)
    least_frac: float = Field(0.14, gt=0, le=1)
    decay_steps: PositiveInt = 600
    retract_steps: NonNegativeInt = 20
    most_new_tokens: PositiveInt = 4096
    newcomers: Literal["whole", "ratio"] = "whole"


RivalOptions = (
    SarathiOptions
    | RefinerOptions
    | QoserveOptions
    | FairBatchingOptions
    | SlosServeOptions
    | PastFutureOptions
    | NewTokenRatioOptions
)
RIVALS: dict[str, type[RivalOptions]] = {
    "sarathi": SarathiOptions,
    "refiner": RefinerOptions,
    "qoserve": QoserveOptions,
    "fairbatching": FairBatchingOptions,
    "slos_serve": SlosServeOptions,
    "past_future": PastFutureOptions,
    "new_token_ratio": NewTokenRatioOptions,
}
