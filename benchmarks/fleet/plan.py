"""What a replica really carries, and the oracle's plan for a day.

The plan is searched by simulation: the replicas that the work of each window needs at a share u of
capacity, over windows of several lengths; the fewest replica-hours that keep ``SHARE`` are taken.
It is a mark to reach for, not a proof that nothing less does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.fleet import fluid
from benchmarks.fleet.outcome import SHARE, Outcome, inside_sla
from benchmarks.fleet.policies import ORACLE, Policy
from benchmarks.fleet.rivals import oracle
from benchmarks.fleet.simulate import Ground, simulate
from benchmarks.fleet.state import make_fleet, occupy
from benchmarks.fleet.traffic import Rates, Requests, draw
from benchmarks.workloads.traffic import Workload

STEP_S = 10.0  # of the plan
WINDOWS_S = (60.0, 300.0)  # over which work is averaged
LOWEST, HIGHEST, HALVINGS = 0.3, 1.3, 5  # shares of capacity that are tried, for one window
NEAR, NEAR_HALVINGS = 0.13, 3  # ... and around what was found there, for the others
TRIAL_REPLICAS, TRIAL_S = 10, 1200.0


def capacity_per_s(workload: Workload, ground: Ground) -> float:
    """Requests/s of one replica among ``TRIAL_REPLICAS`` at which ``SHARE`` stays inside the SLA.

    Poisson arrivals; searched by halving, to a percent or two.
    """
    low, high = 0.05, 0.1
    while high < 1e4 and _attained(workload, ground, high) >= SHARE:
        low, high = high, 2 * high
    for _ in range(6):
        middle = (low + high) / 2
        if _attained(workload, ground, middle) >= SHARE:
            low = middle
        else:
            high = middle
    return low


def _attained(workload: Workload, ground: Ground, rate_per_s: float) -> float:
    rate = rate_per_s * TRIAL_REPLICAS
    requests = draw(Rates(TRIAL_S / 2, (rate, rate), (1.0, 1.0)), workload, ground.seed + 1)
    engine = ground.engine(requests)
    fleet = make_fleet(requests, TRIAL_REPLICAS, engine, ground.seed)
    for slot in range(TRIAL_REPLICAS):
        occupy(fleet, slot, 0.0)
    fluid.run_until(fleet, engine, 2 * TRIAL_S)
    met = inside_sla(requests.arrival_s, fleet.first_s, fleet.end_s, requests.output, ground.sla)
    return float(met.mean())


@dataclass(frozen=True, slots=True)
class Planned:
    """The oracle's day."""

    policy: Policy
    outcome: Outcome


def plan(
    requests: Requests,
    capacity: float,
    ground: Ground,
    *,
    seconds: float,
    replicas: int,
    bounds: dict[str, int],
    windows_s: Sequence[float] = WINDOWS_S,
) -> Planned:
    """The cheapest plan found that keeps ``SHARE``; the best share where none does."""
    tried: list[Planned] = []
    low, high, halvings = LOWEST, HIGHEST, HALVINGS
    for window_s in windows_s:
        work = _work(requests, ground, seconds, window_s) / capacity
        for _ in range(halvings):
            share = (low + high) / 2
            found = _try(work / share, requests, ground, seconds, replicas, bounds)
            tried.append(found)
            if found.outcome.attainment >= SHARE:
                low = share
            else:
                high = share
        low, high, halvings = max(low - NEAR, LOWEST), low + NEAR, NEAR_HALVINGS
    kept = [p for p in tried if p.outcome.attainment >= SHARE]
    if kept:
        return min(kept, key=lambda p: p.outcome.replica_hours)
    return max(tried, key=lambda p: p.outcome.attainment)


def _work(
    requests: Requests, ground: Ground, seconds: float, window_s: float
) -> NDArray[np.float64]:
    """Mean requests/s around each step of the plan, each weighted by the work of its lengths."""
    line = ground.model(requests, ground.engine(requests))
    held = requests.input + requests.output / 2
    one = line.c3 * requests.input + (line.c1 + line.c2 * held) * requests.output
    one = one / one.mean()
    steps = int(np.ceil(seconds / STEP_S))
    at = np.minimum((requests.arrival_s / STEP_S).astype(np.int64), steps - 1)
    per_s = np.bincount(at, weights=one, minlength=steps) / STEP_S
    wide = max(int(window_s / STEP_S), 1)
    padded = np.pad(per_s, (wide // 2, wide - 1 - wide // 2), mode="edge")
    return np.convolve(padded, np.full(wide, 1 / wide), mode="valid")


def _try(
    needed: NDArray[np.float64],
    requests: Requests,
    ground: Ground,
    seconds: float,
    replicas: int,
    bounds: dict[str, int],
) -> Planned:
    counts = np.clip(np.ceil(needed), bounds["min_replicas"], bounds["max_replicas"])
    kwargs = {
        "needed": counts.astype(int).tolist(),
        "step_s": STEP_S,
        "startup_s": ground.startup_s,
    }
    path = "benchmarks.fleet.rivals.oracle:Oracle"
    autoscaling = {
        **bounds,
        "upscale_delay_s": 0.0,
        "downscale_delay_s": 0.0,
        "policy": {"policy_function": path, "policy_kwargs": kwargs},
    }
    policy = Policy(ORACLE, autoscaling, oracle.READS)
    first = max(replicas, int(counts[0]))
    outcome = simulate(
        requests, autoscaling, ground, seconds=seconds, replicas=first, reads=oracle.READS
    )
    return Planned(policy, outcome)
