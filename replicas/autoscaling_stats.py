"""What a replica publishes for autoscaling: plain numbers, averaged over time by Ray Serve."""

from controller.records import ReplicaReport


def autoscaling_stats(report: ReplicaReport) -> dict[str, float]:
    """``serve_app.autoscaling`` reads these names; each is 1 number per replica.

    ``running``, ``waiting`` (requests), ``arrival_rate_per_s`` and ``sla_out_of_reach`` (0 or 1)
    always. ``max_running`` is a cap that holds: the engine's own size where the decided one is not
    applied. Where the SLA is out of reach, neither it nor ``capacity_per_s`` is there (no batch
    keeps the SLA, and Ray Serve would average what is published then with what came before);
    the latter nor where it is unknown.
    """
    stats = {
        "running": float(report.running),
        "waiting": float(report.waiting),
        "arrival_rate_per_s": report.arrival_rate_per_s,
        "sla_out_of_reach": float(report.sla_out_of_reach),
    }
    if report.sla_out_of_reach:
        return stats
    held = report.max_running if report.enforced else report.engine.max_num_seqs
    stats["max_running"] = float(held)
    if report.capacity_per_s is not None:
        stats["capacity_per_s"] = report.capacity_per_s
    return stats
