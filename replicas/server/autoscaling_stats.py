"""What a replica publishes for autoscaling: plain numbers, averaged over time by Ray Serve."""

import math
from typing import Any

from controller.capacity import capacity_per_s, relative_work, work_ratio
from controller.models.lengths import LengthMoments
from controller.records import AutoscaledLoad, EngineReport

SURE = 3.0  # standard errors by which arriving prompts differ from those that ended
LARGEST = 4.0  # times the work of those that ended, or this part of it
KNOWN_ENDS = 10  # of requests that count, from which on their own lengths say what they take


def autoscaling_stats(
    report: EngineReport,
    *,
    most_ongoing: int | None = None,
    refused_per_s: float = 0.0,
    counts_late: bool = False,
) -> dict[str, float]:
    """``serve_app.scaling.reading`` reads these names; each is 1 number per replica.

    Requests of classes with ``autoscale: false`` are in none of them but ``unscaled``. Capacity is
    what the replica carries without them, as they yield to all others; it counts requests of the
    engine's mean size, theirs among them, and so does demand.

    Args:
        most_ongoing: requests that Ray Serve gives this replica at a time; None: any number.
        refused_per_s: requests/s that admission refused. They want to be served, too.
        counts_late: whether there is an SLA for the first token, and so who is late is known.

    Returns:
        ``running``, ``waiting`` (requests), ``arrival_rate_per_s``, ``refused_per_s`` of it,
        ``demand_per_s`` (arrivals in requests of the size that capacity counts) and
        ``sla_out_of_reach`` (0 or 1) always. ``first_tokens`` and ``late_first_tokens``: counted
        since the engine started. ``max_running`` is a cap that holds: the engine's own
        size where the decided one is not applied, and no more than Ray Serve lets in. If the
        SLA is out of reach, neither it nor ``capacity_per_s`` is there (no batch keeps the SLA,
        and Ray Serve would average what is published then with what came before); the latter,
        with ``capacity_error_frac``, nor where it is unknown.
    """
    if report.role == "prefill":  # who asked for a prompt computes it then: it is counted there
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
    # A prefill engine that decides for itself goes by no ITL: its capacity would be too large.
    alone = report.role == "prefill" and report.mode == "fallback"
    if report.capacity_per_s is not None and not alone:
        stats["capacity_per_s"] = _capacity_per_s(report, report.capacity_per_s, held, let_in)
        stats["capacity_error_frac"] = report.capacity_error_frac
    return stats


def scaled_by_another(autoscaling: Any) -> str | None:
    """What to say where Ray Serve goes by its own policy; None if it goes by a named one.

    Args:
        autoscaling: the ``AutoscalingConfig`` that holds now; None: the number is fixed.
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
    """Where all requests count."""
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
    """Capacity of a batch that Ray Serve keeps below the cap: half of it carries half at least."""
    if let_in >= held:
        return capacity
    by_batch = None
    if report.model is not None:
        by_batch = capacity_per_s(report.model, report.lengths, let_in, None)
    return min(capacity, capacity * let_in / held if by_batch is None else by_batch)


def _size(report: EngineReport, load: AutoscaledLoad) -> float:
    """Work of a request that arrives now over that of all that ended; 1 if none is sure.

    Prompts are known when they arrive, and requests end up to minutes later: when a mix shifts,
    capacity follows late, and this is by how much.
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
