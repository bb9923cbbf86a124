"""The CPU cost of the controller at scale: ``make bench-controller``.

The pure part: one control loop decodes the reports of a large fleet in virtual time and encodes its
answers. Times are CPU time of this thread, so other processes do not count. The real part: the same
reports through the Ray actor, one by one (wall-clock time, so a busy machine counts) and many at
once (CPU time of the actor's process, Ray's share included).
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import psutil
import ray
from ray.util.state import list_actors
from tqdm import tqdm

from benchmarks.cost.fleet import Fleet, Wire
from benchmarks.report.rows import Printed
from controller.config import BatchingConfig, Sla
from controller.fleet.actor import NAME, get_controller
from controller.fleet.loop import ControlLoop
from controller.records import ReplicaReport, from_wire, to_wire
from replicas.profiles.profile_file import load_profile
from serve_app.launch.local_cluster import local_cluster
from simulator.virtual.plan import engine_of, parse_policy

PROFILE, SLA = "paper-fig3", Sla(itl_ms=50)
REPLICAS = 1000
WARM_UP_S, MEASURED_S = 5, 10  # virtual time; the first period, in which all join, is separate
REAL_SYNCS, REAL_WARM_UP = 100, 20
AT_ONCE = 50  # syncs in flight while the actor's CPU time is taken
TARGET_SHARE = 1.0  # of a core: one thread decides
TARGET_P99_MS = 5.0  # a hundredth of the period between two syncs of a replica
TARGET_JOIN_S = 2.5  # half a lease, after which a replica no longer waits for its answer


def pure(fleet: Fleet, config: BatchingConfig) -> tuple[float, list[float]]:
    """CPU time of the control loop.

    Returns:
        Seconds for the first report of every replica, as after a controller's restart;
        milliseconds of each sync after the warm-up.
    """
    loop = ControlLoop()

    def took_ms(report: Wire, now_s: float) -> float:
        start_ns = time.thread_time_ns()
        to_wire(loop.exchange(from_wire(ReplicaReport, report), config, now_s))
        return (time.thread_time_ns() - start_ns) / 1e6

    def period(number: int) -> list[float]:
        return [took_ms(report, now_s) for now_s, report in fleet.reports(number)]

    join_s = sum(period(0)) / 1000
    first = 1 + round(WARM_UP_S / config.period_s)
    for number in range(1, first):
        period(number)
    measured = tqdm(range(first, fleet.periods), desc="pure", leave=False)
    each_ms = [ms for number in measured for ms in period(number)]
    return join_s, each_ms


def real(fleet: Fleet, config: BatchingConfig) -> tuple[list[float], float]:
    """The Ray actor on a cluster of this machine.

    Returns:
        Wall-clock milliseconds of single syncs; CPU milliseconds of the actor's process per sync,
        over one period of the whole fleet.
    """
    # A slow machine takes longer than three leases for all of them, and would lose the first.
    batching = {**config.model_dump(), "lease_s": 60.0}
    with local_cluster(cpus=1) as cluster:
        ray.init(address=cluster.gcs_address, log_to_driver=False, logging_level="ERROR")
        try:
            controller = get_controller()
            _all_at_once(controller, fleet, 0, batching)  # all join
            process = _process()
            before_s = sum(process.cpu_times()[:2])
            _all_at_once(controller, fleet, 1, batching)
            cpu_ms = (sum(process.cpu_times()[:2]) - before_s) / len(fleet) * 1000
            return _one_by_one(controller, fleet, batching), cpu_ms
        finally:
            ray.shutdown()


def _all_at_once(controller: Any, fleet: Fleet, period: int, batching: Wire) -> None:
    waiting: list[Any] = []
    for _, report in fleet.reports(period):
        waiting.append(controller.exchange.remote(report, batching))
        if len(waiting) == AT_ONCE:
            done, waiting = ray.wait(waiting, num_returns=1)
            ray.get(done)
    ray.get(waiting)


def _one_by_one(controller: Any, fleet: Fleet, batching: Wire) -> list[float]:
    reports = [report for period in range(2, fleet.periods) for _, report in fleet.reports(period)]
    took = []
    for report in reports[: REAL_WARM_UP + REAL_SYNCS]:
        start_s = time.perf_counter()
        ray.get(controller.exchange.remote(report, batching))
        took.append((time.perf_counter() - start_s) * 1000)
    return took[REAL_WARM_UP:]


def _process() -> psutil.Process:
    (actor,) = (a for a in list_actors() if a.name == NAME and a.state == "ALIVE")
    return psutil.Process(actor.pid)


def pure_rows(fleet: Fleet, config: BatchingConfig, out: Printed) -> None:
    """Rows of the pure part; their ids end in the fleet's size."""
    join_s, each_ms = pure(fleet, config)
    per_s = len(fleet) / config.period_s
    share = statistics.mean(each_ms) / 1000 * per_s
    out.row(f"cpu_share_{len(fleet)}", share, "cores", TARGET_SHARE)
    out.row(f"exchange_p50_ms_{len(fleet)}", statistics.median(each_ms), "ms")
    out.row(f"exchange_p99_ms_{len(fleet)}", float(np.percentile(each_ms, 99)), "ms", TARGET_P99_MS)
    out.row(f"exchange_max_ms_{len(fleet)}", max(each_ms), "ms")
    out.row(f"join_cpu_s_{len(fleet)}", join_s, "s", TARGET_JOIN_S)


def real_rows(fleet: Fleet, config: BatchingConfig, out: Printed) -> None:
    """Rows of the Ray actor."""
    each_ms, cpu_ms = real(fleet, config)
    out.row("actor_exchange_p50_ms", statistics.median(each_ms), "ms")
    out.row("actor_exchange_p99_ms", float(np.percentile(each_ms, 99)), "ms")
    out.row("actor_cpu_ms", cpu_ms, "ms")
    share = cpu_ms / 1000 * len(fleet) / config.period_s
    # No target: Ray's threads run in parallel to the one that runs Python.
    out.row(f"actor_cpu_share_{len(fleet)}", share, "cores")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--replicas", type=int, default=REPLICAS, help="default: %(default)s")
    parser.add_argument("--no-ray", action="store_true", help="only the pure part")
    args = parser.parse_args(argv)

    profile = load_profile(PROFILE)
    plan = parse_policy(BatchingConfig().policy, SLA, engine_of(profile))
    config = plan.batching
    out = Printed()

    periods = 1 + round((WARM_UP_S + MEASURED_S) / config.period_s)
    fleet = Fleet(args.replicas, plan, profile, periods)
    pure_rows(fleet, config, out)
    if not args.no_ray:
        real_rows(fleet, config, out)
    out.end("controller")


if __name__ == "__main__":
    main()
