"""How many requests per second a replica carries inside its SLA.

C are requests/s, B is a batch size, D = D_SLA in seconds, c0..c3 and m the step-time model, K/B the
mean KV tokens of a running request (``LengthMoments.mean_held``). E[in] is without prefix hits, as
these are not computed.
"""

import math

from controller.models.lengths import LengthMoments
from controller.models.step_time import IN_REACH, StepModel

# Steps get at least this share of what D leaves after one decode, or no two requests would run
# together. If D is infeasible, steps take this many times one decode.
LEAST_ROOM_FRAC, INFEASIBLE_STEPS = 0.1, 2.0


def out_of_reach(model: StepModel, itl_s: float) -> bool:
    """Whether no batch keeps D at the percentile."""
    return not model.feasible(typical_itl_s(model, itl_s))


def typical_itl_s(model: StepModel, itl_s: float) -> float:
    """The step time to predict, so that steps take D at the percentile; seconds."""
    return itl_s / (1 + model.tail_frac)


def step_limit_s(model: StepModel, itl_s: float, target_s: float) -> float:
    """``target_s``, or the least time in which requests can run together; seconds."""
    alone_s = model.one_decode_s
    if itl_s < IN_REACH * alone_s:
        return INFEASIBLE_STEPS * alone_s
    return max(target_s, alone_s + LEAST_ROOM_FRAC * (itl_s - alone_s))


def sla_batch(model: StepModel, lengths: LengthMoments, itl_s: float) -> float:
    """B = (D - c0 - m)/(c1 + c2 K/B + c3 E[in]/E[out]): a step with its share of prefill takes D.

    D is ``typical_itl_s``: the SLA less what steps take beyond the model at its percentile.
    Infinite if the model has no such cost; 0 if c0 alone exceeds D.
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
    1/C = E[out] ((c0 + m)/B + c1 + c2 K/B) + c3 E[in]. A step may take D at most, which gives
    B = C E[out] D: C = (D - c0 - m) / (D (c3 E[in] + (c1 + c2 K/B) E[out])). The smaller C holds:
    for smaller batches steps are shorter than D. D as in ``sla_batch``.

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
    """Standard error of ``capacity_per_s`` from the sample of finished requests, as a share.

    It is that of the mean work of n requests, c3 l_in + (c1 + c2 K/B) l_out each; 1 for a single
    request, as their spread is unknown.
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
    """Work of a request with this prompt over the mean work of ``lengths``.

    Its output is assumed to have their mean length.
    """
    work_s = _work_s(model, lengths)
    if work_s <= 0:
        return 1.0
    longer = prompt_tokens - lengths.mean_input
    # It costs its prefill, and KV memory is read for it in each decode step.
    per_token = model.c3 * lengths.computed_frac + model.c2 * lengths.mean_output
    return max(1 + longer * per_token / work_s, 0.0)


def work_ratio(model: StepModel, lengths: LengthMoments, of: LengthMoments) -> float:
    """Mean work of the requests in ``lengths``, over that of the requests in ``of``."""
    whole_s = _work_s(model, of)
    return _work_s(model, lengths) / whole_s if whole_s > 0 else 1.0


def _per_decode(model: StepModel, lengths: LengthMoments) -> float:
    return model.c1 + model.c2 * lengths.mean_held


def _work_s(model: StepModel, lengths: LengthMoments) -> float:
    """Seconds of engine time for a request, without its share of the steps' fixed part."""
    return model.c3 * lengths.mean_computed + _per_decode(model, lengths) * lengths.mean_output
