"""Capacity of a row in the fluid fleet of ``brimful fleet``: all ratios, in seconds each.

Replicas are fluids (``simulator.fleet.fluid``): the ITL is kept by construction, and beside the
replay their goodput with roles is within 2% (decision 40). A rate holds where ``SHARE`` of the
requests of a run's second half are inside the SLA.
"""

import numpy as np

from benchmarks.contests.race import highest
from benchmarks.pd.measure import AGGREGATED, AUTO, PROFILE, Task, prefill_of
from replicas.profiles.profile_file import load_profile
from simulator.fleet import fluid
from simulator.fleet.outcome import SHARE, inside_sla
from simulator.fleet.role_split import RoleSplit
from simulator.fleet.simulate import AFTER_S, Ground
from simulator.fleet.state import PREFILL, make_fleet, occupy
from simulator.fleet.traffic import Rates, draw
from simulator.workloads.catalog import load_workload

# Of a run: 2,400 engine-seconds, 5 minutes at least.
ENGINE_S, LEAST_S, LOOK_S = 2400.0, 300.0, 10.0
LOWEST_PER_S, NEAR_PER_S, HIGHEST_PER_S, PRECISION = 0.02, 2.0, 60.0, 0.02


def measure_fluid(task: Task) -> float:
    """The capacity, requests/s of an engine; 0 where no rate holds.

    Arms are ``aggregated``, ``auto`` and ``P:D``.
    """
    return highest(
        lambda per_s: share_inside(task, per_s) >= SHARE,
        NEAR_PER_S,
        LOWEST_PER_S,
        HIGHEST_PER_S,
        0.1 if task.small else PRECISION,
    )


def share_inside(task: Task, per_s: float) -> float:
    """Share of the second half's requests inside the SLA, at a rate of each engine."""
    row = task.row
    seconds = 60.0 if task.small else max(ENGINE_S / row.engines, LEAST_S)
    transfer = None if task.arm == AGGREGATED else row.transfer
    ground = Ground(load_profile(PROFILE), row.sla, seed=task.seed, transfer=transfer)
    rate = per_s * row.engines
    # A tenth at half the rate, in which roles are found: a queue would stay for long.
    parts = 10
    steps = (rate / 2, *(rate,) * (parts - 1))
    rates = Rates(seconds / parts, steps, (1.0,) * parts)
    requests = draw(rates, load_workload(row.workload), task.seed)
    engine = ground.engine(requests)
    fleet = make_fleet(requests, row.engines, engine, task.seed)
    for slot in range(row.engines):
        occupy(fleet, slot, 0.0)
    fixed = task.arm not in (AGGREGATED, AUTO)
    if fixed:
        fleet.role[: prefill_of(task.arm)] = PREFILL
    roles = None
    if task.arm == AUTO:
        model = ground.model(requests, engine)
        roles = RoleSplit(fleet, engine, row.sla, model, row.transfer)
    for until_s in np.arange(LOOK_S, seconds + AFTER_S, LOOK_S):
        fluid.run_until(fleet, engine, float(until_s), direct=not fixed)
        if roles is not None:
            roles.look(float(until_s))
    second = requests.arrival_s >= seconds / 2
    met = inside_sla(requests.arrival_s, fleet.first_s, fleet.end_s, requests.output, row.sla)
    return float(met[second].mean())
