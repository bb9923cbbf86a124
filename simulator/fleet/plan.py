"""What a replica really carries, and the oracle's plan for a day.

The plan is the cheapest by all work to come, in replica-seconds: replicas, their starts and drains,
and a price for each request that comes above what they carry (dynamic programming, exact for that
cost). The price is searched by simulation, at several shares of capacity and lengths of a drain:
the fewest replica-hours that keep ``SHARE`` are taken, and a little below their price it is looked
for once more. It is a mark to reach for, not a proof that nothing less does.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.errors import ConfigError
from simulator.fleet import fluid, oracle
from simulator.fleet.outcome import SHARE, Outcome, inside_sla
from simulator.fleet.policies import ORACLE, Policy
from simulator.fleet.simulate import Ground, simulate
from simulator.fleet.state import make_fleet, occupy
from simulator.fleet.traffic import Rates, Requests, draw
from simulator.workloads.traffic import Workload

STEP_S = 10.0  # of the plan
FINE = 5  # parts of a step, by each of which work may be above what is carried
# Shares of capacity that a replica is planned to carry, those ``FINER`` from the best of them, and
# with the best of these other seconds that a replica drains than the first.
SHARES, FINER, DRAINS_S = (1.0, 0.93, 1.07), 0.035, (30.0, 0.0, 120.0)
# Prices that are tried for a lost request, in replica-seconds that would have carried it: a replica
# for ten seconds alone, and its start, costs eleven times what it carries.
CHEAPEST, DEAREST, HALVINGS = 1.0, 1000.0, 6
NEAR, NEAR_HALVINGS = 4.0, 4  # times and over the price found before, for the others
CLOSER, CLOSER_HALVINGS = 1.3, 5  # at last: how far below the best plan's price to look
TRIAL_REPLICAS, TRIAL_S = 10, 1200.0
LEAST_PER_S = 0.05  # that a replica has to carry


def capacity_per_s(workload: Workload, ground: Ground) -> float:
    """Requests/s of one replica among ``TRIAL_REPLICAS`` at which ``SHARE`` stays inside the SLA.

    Poisson arrivals; searched by halving, to a percent or two.

    Raises:
        ConfigError: it carries less than ``LEAST_PER_S``.
    """
    low, high = LEAST_PER_S, 2 * LEAST_PER_S
    if _attained(workload, ground, low) < SHARE:
        raise ConfigError(
            [
                f"sla: one replica does not keep it at {low:g} requests/s of these lengths for"
                f" {SHARE:.0%} of them: a longer itl_ms or ttft_ms, or another profile"
            ]
        )
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
) -> Planned:
    """The cheapest plan found that keeps ``SHARE``; the best share where none does."""
    work = _work(requests, ground, seconds) / capacity
    low, high, halvings = CHEAPEST, DEAREST, HALVINGS
    best: Planned | None = None
    at = SHARES[0], DRAINS_S[0], DEAREST  # of the best plan: share, drain, price

    def look(share: float, drain_s: float) -> bool:
        """Search the price; whether it found a better plan."""
        nonlocal low, high, halvings, best, at
        before = best
        for _ in range(halvings):
            price = math.sqrt(low * high)
            needed = cheapest(work / share, price, ground.startup_s + drain_s, bounds)
            found = _try(needed, requests, ground, seconds, replicas, bounds)
            if found.outcome.attainment >= SHARE:
                high = price
            else:
                low = price
            if best is None or _badness(found) < _badness(best):
                best, at = found, (share, drain_s, price)
        low, high, halvings = high / NEAR, high * NEAR, NEAR_HALVINGS
        return best is not before

    usual_share, usual_drain_s = SHARES[0], DRAINS_S[0]
    look(usual_share, usual_drain_s)
    for share in SHARES[1:]:
        if look(share, usual_drain_s):
            usual_share = share
    for share in (usual_share - FINER, usual_share + FINER):
        if look(share, usual_drain_s):
            usual_share = share
    for drain_s in DRAINS_S[1:]:
        look(usual_share, drain_s)
    share, drain_s, price = at
    assert best is not None
    if best.outcome.attainment >= SHARE:
        # Prices were tried a step apart: what takes the fewest hours may lie just below the best.
        low, high, halvings = price / CLOSER, price, CLOSER_HALVINGS
        look(share, drain_s)
    return best


def _badness(planned: Planned) -> tuple[bool, float]:
    """The least of those that keep ``SHARE``, by their hours; else by what they miss."""
    outcome = planned.outcome
    missed = outcome.attainment < SHARE
    return missed, -outcome.attainment if missed else outcome.replica_hours


def cheapest(
    work: NDArray[np.float64], price: float, change_s: float, bounds: Mapping[str, int]
) -> NDArray[np.int64]:
    """Replicas at each step of a plan for which time, starts and losses cost least in all.

    Backwards in time: V(t, n) = cost(t, n) + min over m of V(t + 1, m) + start x (m - n)+.

    Args:
        work: that comes, in replicas that it keeps busy; shape (steps, parts of a step).
        price: of work that nobody carries, over that of the replica that would have.
        change_s: a replica is paid for while it starts and drains.
    """
    counts = np.arange(bounds["min_replicas"], bounds["max_replicas"] + 1)
    start = change_s / STEP_S * counts
    later, follow = np.zeros(len(counts)), np.empty((len(work), len(counts)), dtype=np.int64)
    index = np.arange(len(counts))
    for t in range(len(work) - 1, -1, -1):
        # The best of as many or fewer, and the best of more, whose starts are paid here.
        fewer = _least(later)
        more = len(index) - 1 - _least((later + start)[::-1])[::-1]
        stays = later[fewer] <= later[more] + start[more] - start
        follow[t] = np.where(stays, fewer, more)
        after = np.where(stays, later[fewer], later[more] + start[more] - start)
        lost = np.maximum(work[t][:, None] - counts, 0.0).mean(axis=0)
        later = counts + price * lost + after
    n, path = int(later.argmin()), np.empty(len(work), dtype=np.int64)
    for t in range(len(work)):
        path[t] = counts[n]
        n = int(follow[t][n])
    return path


def _least(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Where the least of ``values[: i + 1]`` stands, for each i; the last of equals."""
    index = np.arange(len(values))
    lowest = np.minimum.accumulate(values)
    return np.maximum.accumulate(np.where(values <= lowest, index, 0))


def _work(requests: Requests, ground: Ground, seconds: float) -> NDArray[np.float64]:
    """Requests/s, each weighted by the work of its lengths; shape (steps of the plan, ``FINE``)."""
    line = ground.model(requests, ground.engine(requests))
    held = requests.input + requests.output / 2
    one = line.c3 * requests.input + (line.c1 + line.c2 * held) * requests.output
    one = one / one.mean()
    parts, part_s = math.ceil(seconds / STEP_S) * FINE, STEP_S / FINE
    at = np.minimum((requests.arrival_s / part_s).astype(np.int64), parts - 1)
    return (np.bincount(at, weights=one, minlength=parts) / part_s).reshape(-1, FINE)


def _try(
    needed: NDArray[np.int64],
    requests: Requests,
    ground: Ground,
    seconds: float,
    replicas: int,
    bounds: dict[str, int],
) -> Planned:
    kwargs = {"needed": needed.tolist(), "step_s": STEP_S, "startup_s": ground.startup_s}
    path = "simulator.fleet.oracle:Oracle"
    autoscaling = {
        **bounds,
        "upscale_delay_s": 0.0,
        "downscale_delay_s": 0.0,
        "policy": {"policy_function": path, "policy_kwargs": kwargs},
    }
    policy = Policy(ORACLE, autoscaling, oracle.READS)
    first = max(replicas, int(needed[0]))
    outcome = simulate(
        requests, autoscaling, ground, seconds=seconds, replicas=first, reads=oracle.READS
    )
    return Planned(policy, outcome)
