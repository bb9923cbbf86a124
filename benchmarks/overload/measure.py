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
    lengths,
)
from benchmarks.overload.stack import MODEL, URL, application, fleet
from replicas.profiles.profile_file import load_profile
from serve_app.demo.machine import Waited
from serve_app.launch.running import wait_reached

WARM_UP_S, SETTLE_S = 5.0, 20.0
GRACE_S = 60.0  # longer than any deadline: a request without an answer by then is late


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run; ``seconds`` of each load."""

    seconds: float
    time_scale: float
    seed: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One variant under all loads.

    Attributes:
        waited_frac: share of the time that the client waited for a core; None: unknown.
    """

    figures: Figures
    waited_frac: float | None


def slo(time_scale: float) -> Slo:
    """The clients' SLO, in their time."""
    ttft_s = {name: one["ttft_ms"] / 1000 * time_scale for name, one in CLASSES.items()}
    return Slo(ttft_s, ITL_MS / 1000 * time_scale)


def slots_per_s(time_scale: float) -> float:
    """Requests/s if every slot is always busy."""
    step_s = load_profile(PROFILE).step_s(SLOTS, 0, 0, 0) * time_scale
    return REPLICAS * SLOTS / (sum(OUTPUT_TOKENS) / 2 * step_s)


def capacity_per_s(seconds: float, time_scale: float) -> float:
    """Requests/s served at twice the load of all slots, in the second half of the run."""
    asked = plan([(2 * slots_per_s(time_scale), seconds)], SHARES, 0, lengths)
    found = asyncio.run(send(URL, MODEL, asked, seconds + GRACE_S))
    return sum(seconds / 2 <= o.ended_s < seconds and o.whole for o in found) / (seconds / 2)


def run(variant: str, per_s: float, settings: Settings) -> Measured:
    """One variant under all loads."""
    phases = phases_of(LOADS, settings.seconds)
    loads = [(load * per_s, settings.seconds) for load in LOADS]
    asked = plan(loads, SHARES, settings.seed, lengths)
    print(f"{variant}: {len(asked)} requests", file=sys.stderr)
    waited = Waited()
    outcomes = asyncio.run(send(URL, MODEL, asked, phases[-1].end_s + GRACE_S))
    waited_frac = waited.frac()
    found = figures(outcomes, phases, slo(settings.time_scale))
    return Measured(found, waited_frac)


def measure(variants: Sequence[str], settings: Settings) -> tuple[float, dict[str, Measured]]:
    """The rate of 1x, requests/s, and each variant under all loads."""
    found: dict[str, Measured] = {}
    per_s = 0.0
    with fleet() as deployed:
        for variant in variants:
            deployed.deploy(application(variant, settings.time_scale))
            wait_reached(URL)
            warm = plan([(slots_per_s(settings.time_scale) / 2, WARM_UP_S)], SHARES, 1, lengths)
            asyncio.run(send(URL, MODEL, warm))
            if not per_s:
                seconds = max(settings.seconds / 2, 10.0)
                per_s = ONE * capacity_per_s(seconds, settings.time_scale)
                time.sleep(SETTLE_S)
            found[variant] = run(variant, per_s, settings)
    return per_s, found
