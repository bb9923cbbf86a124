"""How many requests per second a replica carries inside its SLA.

C are requests/s, B is a batch size, D = D_SLA in seconds, c0..c3 and m the step-time model, K/B the
KV tokens a running request holds on average (``LengthMoments.mean_held``). Of E[in], what the
prefix cache held is not computed and does not count.
"""

import math

from controller.models.lengths import LengthMoments
from controller.models.step_time import IN_REACH, StepModel

# Steps are given at least this share of what D leaves one decode, or no request would start beside
# others; if D is infeasible, as long as so many steps of one decode.
LEAST_ROOM_FRAC, INFEASIBLE_STEPS = 0.1, 2.0


def out_of_reach(model: StepModel, itl_s: float) -> bool:
    """Whether no batch keeps D at the percentile."""
    return not model.feasible(typical_itl_s(model, itl_s))


def typical_itl_s(model: StepModel, itl_s: float) -> float:
    """What a step is to take as predicted, so that it takes D at the percentile; seconds."""
    return itl_s / (1 + model.tail_frac)


def step_limit_s(model: StepModel, itl_s: float, target_s: float) -> float:
    """``target_s``, or the least with which requests are served together; seconds."""
    alone_s = model.one_decode_s
    if itl_s < IN_REACH * alone_s:
        return INFEASIBLE_STEPS * alone_s
    return max(target_s, alone_s + LEAST_ROOM_FRAC * (itl_s - alone_s))


def sla_batch(model: StepModel, lengths: LengthMoments, itl_s: float) -> float:
    """B = (D - c0 - m)/(c1 + c2 K/B + c3 E[in]/E[out]): a step with its share of prefill takes D.

    D is the SLA less what steps take beyond the model at its percentile (``typical_itl_s``).
    Infinite if the model charges nothing for any of them; 0 if c0 alone breaks D.
    """
    per_decode = model.c1 + model.c2 * lengths.mean_held
    per_request = per_decode + model.c3 * lengths.mean_computed / lengths.mean_output
    if per_request <= 0:
        return math.inf
    fixed_s = model.c0 + model.mixed_s
    return max((typical_itl_s(model, itl_s) - fixed_s) / per_request, 0.0)


def capacity_per_s(
    model: StepModel, lengths: LengthMoments, max_running: int, itl_s: float | None
) -> float | None:
    """Requests/s at which a replica's batch stays at ``max_running`` or its steps take D.

    A request costs c3 E[in] of prefill and E[out] steps of decode, so with a batch of B
    1/C = E[out] ((c0 + m)/B + c1 + c2 K/B) + c3 E[in]. A step may take D at most, which puts
    B = C E[out] D: C = (D - c0 - m) / (D (c3 E[in] + (c1 + c2 K/B) E[out])). Below that batch steps
    are shorter than D and the first is the smaller one, above it the second. D as in ``sla_batch``.

    None if nothing finished yet, or the model explains no cost; 0 if D is out of reach.
    """
    if not lengths.n or not lengths.output:
        return None
    work_s = _work_s(model, lengths)
    fixed_s = model.c0 + model.mixed_s  # at capacity every step has a prompt
    by_batch_s = work_s + lengths.mean_output * fixed_s / max_running
    if by_batch_s <= 0:
        return None
    by_batch = 1 / by_batch_s
    if itl_s is None:
        return by_batch
    if out_of_reach(model, itl_s):
        return 0.0
    step_s = typical_itl_s(model, itl_s)
    by_sla = max(step_s - fixed_s, 0.0) / (step_s * work_s) if work_s > 0 else math.inf
    return min(by_sla, by_batch)


def capacity_error_frac(model: StepModel, lengths: LengthMoments) -> float:
    """How far off ``capacity_per_s`` may be for the requests that happened to end, share of it.

    The standard error of the mean work of n requests, c3 l_in + (c1 + c2 K/B) l_out each, over that
    mean; 1 if one alone ended, as nothing is known of how they spread.
    """
    work_s = _work_s(model, lengths)
    if work_s <= 0:
        return 1.0
    n, per_decode = lengths.n, _per_decode(model, lengths)
    var_in = max(lengths.input_sq / n - lengths.mean_input**2, 0.0)
    var_out = max(lengths.output_sq / n - lengths.mean_output**2, 0.0)
    cov = lengths.cross / n - lengths.mean_input * lengths.mean_output
    per_token = model.c3 * lengths.computed_frac
    variance = per_token**2 * var_in + per_decode**2 * var_out + 2 * per_token * per_decode * cov
    return min(math.sqrt((max(variance, 0.0) / work_s**2 + 1 / n) / n), 1.0)


def relative_work(model: StepModel, lengths: LengthMoments, prompt_tokens: float) -> float:
    """Work of a request with such a prompt, over that of the requests that ``lengths`` counts.

    Its output is taken to be as long as theirs, since nothing is known of it yet.
    """
    work_s = _work_s(model, lengths)
    if work_s <= 0:
        return 1.0
    longer = prompt_tokens - lengths.mean_input
    # It costs its prefill, and is held in memory while each of its tokens is decoded.
    per_token = model.c3 * lengths.computed_frac + model.c2 * lengths.mean_output
    return max(1 + longer * per_token / work_s, 0.0)


def work_ratio(model: StepModel, lengths: LengthMoments, of: LengthMoments) -> float:
    """Mean work of the requests that ``lengths`` counts, over that of those in ``of``."""
    whole_s = _work_s(model, of)
    return _work_s(model, lengths) / whole_s if whole_s > 0 else 1.0


def _per_decode(model: StepModel, lengths: LengthMoments) -> float:
    return model.c1 + model.c2 * lengths.mean_held


def _work_s(model: StepModel, lengths: LengthMoments) -> float:
    """Seconds of the engine that a request takes, without its share of empty steps."""
    return model.c3 * lengths.mean_computed + _per_decode(model, lengths) * lengths.mean_output
