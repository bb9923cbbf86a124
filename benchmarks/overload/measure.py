"""One variant after the other on one cluster; what was measured is kept, for a run in parts."""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.overload.client import Outcome, Planned, plan, send
from benchmarks.overload.figures import Figures, Phase, Promise, figures, phases_of
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
from benchmarks.overload.stack import MODEL, URL, Fleet, application, fleet
from replicas.profiles.profile_file import load_profile
from serve_app.demo.machine import Machine
from serve_app.launch.running import wait_reached

WARM_UP_S, SETTLE_S = 5.0, 20.0
SHOWN = 4  # processes, of those that grew
GRACE_S = 60.0  # longer than any deadline: what is not served then is late whenever it comes


@dataclass(frozen=True, slots=True)
class Settings:
    """What makes two runs comparable; seconds of each load."""

    seconds: float
    time_scale: float
    seed: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One variant under all loads.

    Attributes:
        memory_mb: of the processes that grew most, by name: resident at each load's end.
        waited_frac: share of the time in which the client had work and no core; None: not known.
        others_cores: that other programs took meanwhile.
    """

    figures: Figures
    memory_mb: dict[str, tuple[float, ...]]
    waited_frac: float | None
    others_cores: float

    @property
    def growth_mb(self) -> float:
        """The largest of any process, from the end of the first load to that of the last."""
        return max((grown(held) for held in self.memory_mb.values()), default=0.0)


class Kept:
    """What was measured under these settings, in a file; of other settings nothing is kept."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self._path, self._settings = path, settings
        self.per_s: float | None = None
        self.by_variant: dict[str, Measured] = {}
        with contextlib.suppress(FileNotFoundError):
            found = json.loads(path.read_text())
            if found["settings"] == asdict(settings):
                self.per_s = found["per_s"]
                self.by_variant = {n: _measured(one) for n, one in found["by_variant"].items()}

    def keep(self) -> None:
        """Write what there is now."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        variants = {name: asdict(one) for name, one in self.by_variant.items()}
        data = {"settings": asdict(self._settings), "per_s": self.per_s, "by_variant": variants}
        self._path.write_text(json.dumps(data))


def _measured(data: dict[str, object]) -> Measured:
    seen = dict(data.pop("figures"))  # type: ignore[call-overload]
    seen["goodput_per_s"] = tuple(seen["goodput_per_s"])
    held = data.pop("memory_mb")
    memory_mb = {name: tuple(mb) for name, mb in held.items()}  # type: ignore[attr-defined]
    seen["attainment"] = {name: tuple(shares) for name, shares in seen["attainment"].items()}
    return Measured(figures=Figures(**seen), memory_mb=memory_mb, **data)  # type: ignore[arg-type]


def promise(time_scale: float) -> Promise:
    """What clients are promised, in the time that passes for them."""
    ttft_s = {name: one["ttft_ms"] / 1000 * time_scale for name, one in CLASSES.items()}
    return Promise(ttft_s, ITL_MS / 1000 * time_scale)


def slots_per_s(time_scale: float) -> float:
    """Requests a second if every slot is always taken."""
    step_s = load_profile(PROFILE).step_s(SLOTS, 0, 0, 0) * time_scale
    return REPLICAS * SLOTS / (sum(OUTPUT_TOKENS) / 2 * step_s)


def capacity_per_s(seconds: float, time_scale: float) -> float:
    """What the fleet serves while twice its slots are asked for; by the second half of the run."""
    asked = plan([(2 * slots_per_s(time_scale), seconds)], SHARES, 0, lengths)
    found = asyncio.run(send(URL, MODEL, asked, seconds + GRACE_S))
    return sum(seconds / 2 <= o.ended_s < seconds and o.whole for o in found) / (seconds / 2)


async def _send(
    deployed: Fleet, asked: Sequence[Planned], phases: Sequence[Phase]
) -> tuple[list[Outcome], list[dict[str, float]]]:
    """What became of the requests, and the memory of each process at each load's end, MB."""
    begin_s = time.perf_counter()

    async def memory(phase: Phase) -> dict[str, float]:
        await asyncio.sleep(phase.end_s - (time.perf_counter() - begin_s))
        return await asyncio.to_thread(deployed.memory_mb)

    sampling = [asyncio.create_task(memory(phase)) for phase in phases]
    outcomes = await send(URL, MODEL, asked, phases[-1].end_s + GRACE_S)
    return outcomes, list(await asyncio.gather(*sampling))


def run(deployed: Fleet, variant: str, per_s: float, settings: Settings) -> Measured:
    """One variant under all loads."""
    phases = phases_of(LOADS, settings.seconds)
    loads = [(load * per_s, settings.seconds) for load in LOADS]
    asked = plan(loads, SHARES, settings.seed, lengths)
    print(f"{variant}: {len(asked)} requests", file=sys.stderr)
    machine = Machine([psutil.Process(os.getpid()), psutil.Process(deployed.pid)])
    outcomes, memory = asyncio.run(_send(deployed, asked, phases))
    shares = machine.shares()
    found = figures(outcomes, phases, promise(settings.time_scale))
    return Measured(found, most_grown(memory), shares.waited_frac, shares.others_cores)


def grown(held_mb: Sequence[float]) -> float:
    """From the end of the first load to that of the last, MB."""
    return held_mb[-1] - held_mb[0]


def most_grown(memory: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, ...]]:
    """The ``SHOWN`` processes that grew most, among those that lived through all loads.

    Args:
        memory: by process, MB, at each load's end.
    """
    lived = set.intersection(*(set(at) for at in memory))
    series = {name: tuple(at[name] for at in memory) for name in lived}
    names = sorted(series, key=lambda name: (-grown(series[name]), name))
    return {name: series[name] for name in names[:SHOWN]}


def measure(variants: Sequence[str], settings: Settings, kept: Kept) -> None:
    """Add those of the variants to ``kept`` that are not there yet."""
    missing = [variant for variant in variants if variant not in kept.by_variant]
    if not missing:
        return
    with fleet() as deployed:
        for variant in missing:
            deployed.deploy(application(variant, settings.time_scale))
            wait_reached(URL)
            warm = plan([(slots_per_s(settings.time_scale) / 2, WARM_UP_S)], SHARES, 1, lengths)
            asyncio.run(send(URL, MODEL, warm))
            if kept.per_s is None:
                seconds = max(settings.seconds / 2, 10.0)
                kept.per_s = ONE * capacity_per_s(seconds, settings.time_scale)
                time.sleep(SETTLE_S)
            kept.by_variant[variant] = run(deployed, variant, kept.per_s, settings)
            kept.keep()
