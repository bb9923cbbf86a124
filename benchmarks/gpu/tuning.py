"""The best static limits of a case, by replays on the card's own profile, on spare CPU cores.

Replays run while the card measures what needs no tuned rival.
"""

import math
import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import active_children, get_context

from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from simulator.replay.measure import summarise
from simulator.virtual.plan import EngineOptions, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.traffic import draw_traffic

WORKLOADS = ("exponential:257,62", "azure-2023-conversation", "exponential:257,447")
SEED = 100  # the card's runs have others
Limits = tuple[int, int]
"""``max_num_seqs`` and ``max_num_batched_tokens``."""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload at a rate, on a profile.

    Args:
        itl_ms: of the SLA.
    """

    profile: str
    workload: str
    rate_per_s: float
    itl_ms: float
    seconds: float


def cost_of(case: Case, limits: Limits) -> float:
    """J of a static engine with these limits; less is better."""
    from simulator.replay.engine import Scenario, replay

    profile = load_profile(case.profile)
    options = EngineOptions(
        max_num_seqs=limits[0], max_num_batched_tokens=limits[1], async_scheduling=True
    )
    sla = Sla(itl_ms=case.itl_ms)
    n = math.ceil(case.rate_per_s * case.seconds)
    requests = draw_traffic(load_workload(case.workload), n, None, SEED).at(case.rate_per_s)
    trace = replay(requests, parse_policy("static", sla, options), Scenario(profile))
    figures = summarise("static", trace, sla)
    return math.inf if figures.j is None else figures.j


def label_of(workload: str) -> str:
    """The workload's name in results."""
    return workload.split(":")[-1].replace(",", "-")


class Tuner:
    """Replays in processes, one for each spare core."""

    def __init__(self) -> None:
        cores = sorted(os.sched_getaffinity(0))
        spare = cores[-max(len(cores) // 2, 1) :]  # replays must not delay the launch of a step
        if len(cores) > 1:
            os.sched_setaffinity(0, set(cores) - set(spare))
        self._pool = ProcessPoolExecutor(
            len(spare), mp_context=get_context("spawn"), initializer=_settle, initargs=(spare,)
        )
        self._replays: dict[Case, dict[Limits, Future[float]]] = {}
        for _ in spare:
            self._pool.submit(_warm)  # import vLLM early

    def tune(self, case: Case, candidates: Sequence[Limits]) -> None:
        """Start the replays of a case."""
        self._replays[case] = {one: self._pool.submit(cost_of, case, one) for one in candidates}

    def best(self, case: Case, count: int, wait_s: float) -> list[Limits]:
        """The best of those known after at most ``wait_s``; the first ones if none is."""
        replays = self._replays[case]
        done, _ = wait(replays.values(), wait_s)
        for one, made in replays.items():
            if made in done and made.exception():
                print(f"no replay of {one}: {made.exception()!r}", flush=True)
        known = {
            one: made.result()
            for one, made in replays.items()
            if made in done and not made.exception()
        }
        for one in sorted(known, key=known.__getitem__)[:5]:
            print(f"  replay of {case.workload} at {case.rate_per_s:.3g}: {one} {known[one]:.4g}")
        best = sorted(known, key=known.__getitem__)[:count]
        return best or list(replays)[:count]

    def close(self) -> None:
        """Stop all processes."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in active_children():
            process.terminate()


def _settle(cores: Sequence[int]) -> None:
    os.sched_setaffinity(0, set(cores))


def _warm() -> None:
    import simulator.replay.engine  # noqa: F401
