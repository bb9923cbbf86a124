"""A replica's numbers for autoscaling, which Ray Serve averages over time."""

import math
from typing import Any

from controller.capacity import capacity_per_s, relative_work, work_ratio
from controller.models.lengths import LengthMoments
from controller.records import AutoscaledLoad, EngineReport

SURE = 3.0  # standard errors between arriving and finished prompts that count as a difference
LARGEST = 4.0  # bound on the ratio of their work, and its inverse
KNOWN_ENDS = 10  # finished autoscaled requests needed to use their own lengths


def autoscaling_stats(
    report: EngineReport,
    *,
    most_ongoing: int | None = None,
    refused_per_s: float = 0.0,
    counts_late: bool = False,
) -> dict[str, float]:
    """Numbers of one replica, under the names that ``serve_app.scaling.reading`` reads.

    Requests of classes with ``autoscale: false`` count only in ``unscaled``. Capacity is that
    without these requests, as they yield to all others. It counts requests of the engine's mean
    size, theirs included, and so does demand.

    Args:
        most_ongoing: requests that Ray Serve gives this replica at a time; None: any number.
        refused_per_s: requests/s that admission refused; they are part of the demand.
        counts_late: whether there is a TTFT, so that late requests are known.

    Returns:
        Always ``running``, ``waiting`` (requests), ``arrival_rate_per_s``, its part
        ``refused_per_s``, ``demand_per_s`` (arrivals in requests of capacity's size) and
        ``sla_out_of_reach`` (0 or 1). ``first_tokens`` and ``late_first_tokens`` count since the
        engine started. ``max_running`` is the enforced cap: the engine's own size if no other is
        applied, at most ``most_ongoing``. If the SLA is out of reach, ``max_running`` and
        ``capacity_per_s`` are left out (Ray Serve would average them with earlier values). If it
        is unknown, ``capacity_per_s`` is left out as well, with ``capacity_error_frac``.
    """
    if report.role == "prefill":  # the decode replica then computes the prompt, and counts it
        refused_per_s = 0.0
    load = report.autoscaled or _whole(report)
    arrivals = load.arrival_rate_per_s + refused_per_s
    stats = {
        "running": float(load.running),
        "waiting": float(load.waiting),
        "arrival_rate_per_s": arrivals,
        "refused_per_s": refused_per_s,
        "demand_per_s": arrivals * _size(report, load),
        "sla_out_of_reach": float(report.sla_out_of_reach),
    }
    if report.autoscaled is not None:
        others = report.running + report.waiting - load.running - load.waiting
        stats["unscaled"] = float(max(others, 0))
    if counts_late:
        stats["first_tokens"] = float(load.first_tokens)
        stats["late_first_tokens"] = float(load.late_first_tokens)
    if report.sla_out_of_reach:
        return stats
    held = report.max_running if report.enforced else report.engine.max_num_seqs
    let_in = held if most_ongoing is None else min(held, most_ongoing)
    stats["max_running"] = float(let_in)
    # A prefill engine in fallback has no ITL: its capacity would be too large.
    alone = report.role == "prefill" and report.mode == "fallback"
    if report.capacity_per_s is not None and not alone:
        stats["capacity_per_s"] = _capacity_per_s(report, report.capacity_per_s, held, let_in)
        stats["capacity_error_frac"] = report.capacity_error_frac
    return stats


def scaled_by_another(autoscaling: Any) -> str | None:
    """A warning if Ray Serve scales by its own policy; None if a policy is named.

    Args:
        autoscaling: the present ``AutoscalingConfig``; None: the number is fixed.
    """
    if autoscaling is None or not autoscaling.policy.is_default_policy_function():
        return None
    return (
        "Ray Serve scales this deployment by its own policy, for"
        f" {autoscaling.get_target_ongoing_requests():g} ongoing requests per replica; the scaling"
        " block has no effect. An autoscaling_config under `deployments:` that names no policy does"
        " that, and `brimful check` says what to write."
    )


def _whole(report: EngineReport) -> AutoscaledLoad:
    """The load if all requests count."""
    return AutoscaledLoad(
        report.running,
        report.waiting,
        report.arrival_rate_per_s,
        report.prompts,
        report.lengths,
        report.ttft.n,
        report.late_ttft,
    )


def _capacity_per_s(report: EngineReport, capacity: float, held: int, let_in: int) -> float:
    """Capacity if Ray Serve keeps the batch below the cap; half a batch carries at least half."""
    if let_in >= held:
        return capacity
    by_batch = None
    if report.model is not None:
        by_batch = capacity_per_s(report.model, report.lengths, let_in, None)
    return min(capacity, capacity * let_in / held if by_batch is None else by_batch)


def _size(report: EngineReport, load: AutoscaledLoad) -> float:
    """Work of an arriving request over that of finished ones; 1 if the difference is not sure.

    Prompts are known at arrival, but requests end up to minutes later. If the mix shifts, capacity
    follows late; this ratio corrects that.
    """
    prompts, lengths = load.prompts, load.lengths
    if report.model is None or not prompts.n or not report.lengths.n:
        return 1.0
    usual = 1.0
    if lengths.n >= KNOWN_ENDS:
        usual = work_ratio(report.model, lengths, report.lengths)
    else:
        lengths = report.lengths
    error = math.hypot(_error(prompts), _error(lengths))
    if prompts.n < 2 or abs(prompts.mean_input - lengths.mean_input) <= SURE * error:
        return usual
    size = relative_work(report.model, lengths, prompts.mean_input)
    return usual * min(max(size, 1 / LARGEST), LARGEST)


def _error(lengths: LengthMoments) -> float:
    """The standard error of the mean prompt, tokens."""
    variance = lengths.input_sq / lengths.n - lengths.mean_input**2
    return math.sqrt(max(variance, 0.0) / lengths.n)
