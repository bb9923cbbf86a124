"""One variant after the other on one cluster."""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.overload.client import plan, send
from benchmarks.overload.figures import Figures, Slo, figures, phases_of
from benchmarks.overload.shapes import (
    CLASSES,
    ITL_MS,
    LOADS,
    ONE,
    OUTPUT_TOKENS,
    PROFILE,
    REPLICAS,
    SHARES,
    SLOTS,
    TIME_SCALE,
    lengths,
)
from benchmarks.overload.stack import DEPLOY_TIMEOUT_S, MODEL, URL, application, fleet
from replicas.profiles.profile_file import load_profile
from serve_app.apply.cluster import wait_reached
from serve_app.demo.stack import Waited

WARM_UP_S, SETTLE_S = 5.0, 20.0
GRACE_S = 60.0  # longer than any deadline: a request without an answer by then is late
# In the clients' time.
SLO = Slo(
    {name: one["ttft_ms"] / 1000 * TIME_SCALE for name, one in CLASSES.items()},
    ITL_MS / 1000 * TIME_SCALE,
)
STEP_S = load_profile(PROFILE).step_s(SLOTS, 0, 0, 0) * TIME_SCALE
SLOTS_PER_S = REPLICAS * SLOTS / (sum(OUTPUT_TOKENS) / 2 * STEP_S)  # requests/s, all slots busy
SEED = 1


@dataclass(frozen=True, slots=True)
class Measured:
    """One variant under all loads.

    Attributes:
        waited_frac: share of the time that the client waited for a core; None: unknown.
    """

    figures: Figures
    waited_frac: float | None


def capacity_per_s(seconds: float) -> float:
    """Requests/s served at twice the load of all slots, in the second half of the run."""
    planned = plan([(2 * SLOTS_PER_S, seconds)], SHARES, 0, lengths)
    found = asyncio.run(send(URL, MODEL, planned, seconds + GRACE_S))
    return sum(seconds / 2 <= o.ended_s < seconds and o.whole for o in found) / (seconds / 2)


def run(variant: str, per_s: float, seconds: float) -> Measured:
    """One variant under all loads, each for ``seconds``."""
    phases = phases_of(LOADS, seconds)
    loads = [(load * per_s, seconds) for load in LOADS]
    planned = plan(loads, SHARES, SEED, lengths)
    print(f"{variant}: {len(planned)} requests", file=sys.stderr)
    waited = Waited()
    outcomes = asyncio.run(send(URL, MODEL, planned, phases[-1].end_s + GRACE_S))
    waited_frac = waited.frac()
    found = figures(outcomes, phases, SLO)
    return Measured(found, waited_frac)


def measure(variants: Sequence[str], seconds: float) -> tuple[float, dict[str, Measured]]:
    """The rate of 1x, requests/s, and each variant under all loads."""
    found: dict[str, Measured] = {}
    per_s = 0.0
    with fleet() as deployed:
        for variant in variants:
            deployed.deploy(application(variant), DEPLOY_TIMEOUT_S)
            wait_reached(URL)
            warm = plan([(SLOTS_PER_S / 2, WARM_UP_S)], SHARES, 1, lengths)
            asyncio.run(send(URL, MODEL, warm))
            if not per_s:
                per_s = ONE * capacity_per_s(max(seconds / 2, 10.0))
                time.sleep(SETTLE_S)
            found[variant] = run(variant, per_s, seconds)
    return per_s, found
