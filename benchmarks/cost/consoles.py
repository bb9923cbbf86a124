"""What open consoles cost the batch controller: its exchanges with a fleet, with and without them.

Both in turns on one cluster, so that what else the machine does is in both alike.
"""

import asyncio
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil
import ray

from benchmarks.cost.fleet import Wire
from controller.fleet.actor import NAMESPACE

TURNS = 4  # without consoles and with them, each
TURN_S = 6.0
WARM_UP_S = 1.0  # of each turn, that does not count


@dataclass(slots=True)
class Phase:
    """With or without consoles.

    Args:
        exchange_ms: each exchange, by the wall.
        cpu_s: of the controller's process, Ray's share in it.
        wall_s: over which.
    """

    exchange_ms: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    wall_s: float = 0.0

    @property
    def cpu_share(self) -> float:
        """Cores."""
        return self.cpu_s / self.wall_s


class Consoles:
    """A process that asks as so many consoles do, once a second each; a page more asks no more."""

    async def ask(self, controller: str, consoles: int, seconds: float) -> int:
        """How often it was answered."""
        handle, answers = ray.get_actor(controller, namespace=NAMESPACE), 0
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            next_s = time.monotonic() + 1 / consoles
            await handle.glance.remote()
            answers += 1
            await asyncio.sleep(max(next_s - time.monotonic(), 0))
        return answers


def beside_consoles(
    controller: Any,
    name: str,
    process: psutil.Process,
    reports: list[Wire],
    batching: Wire,
    *,
    per_s: float,
    consoles: int,
) -> tuple[Phase, Phase]:
    """Exchanges at the rate of a fleet, in turns without and with so many consoles.

    Args:
        name: the controller's, by which others find it.
        process: the controller's.
        reports: are sent again and again, which changes nothing.
        per_s: exchanges a second.

    Returns:
        Without, and with.
    """
    looking = ray.remote(Consoles).options(num_cpus=0).remote()
    phases = Phase(), Phase()
    source = itertools.cycle(reports)
    for turn in range(2 * TURNS):
        open_ = turn % 2 == 1
        asked = looking.ask.remote(name, consoles, TURN_S) if open_ else None
        asyncio.run(_paced(controller, source, batching, per_s, phases[open_], process.cpu_times))
        if asked is not None:
            ray.get(asked)
    return phases


async def _paced(
    controller: Any,
    reports: Iterator[Wire],
    batching: Wire,
    per_s: float,
    phase: Phase,
    cpu_times: Callable[[], Any],
) -> None:
    async def exchange(counted: bool) -> None:
        start_s = time.perf_counter()
        await controller.exchange.remote(next(reports), batching)
        if counted:
            phase.exchange_ms.append((time.perf_counter() - start_s) * 1000)

    under_way = set()
    begun_s = time.monotonic()
    counts_s, before_s = begun_s + WARM_UP_S, 0.0
    for number in itertools.count():
        due_s = begun_s + number / per_s
        if due_s >= begun_s + TURN_S:
            break
        await asyncio.sleep(max(due_s - time.monotonic(), 0))
        counted = due_s >= counts_s
        if counted and not before_s:
            before_s, counts_s = sum(cpu_times()[:2]), time.monotonic()
        under_way.add(task := asyncio.create_task(exchange(counted)))
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    phase.cpu_s += sum(cpu_times()[:2]) - before_s
    phase.wall_s += time.monotonic() - counts_s


def rows_of(without: Phase, with_them: Phase, consoles: int) -> Iterator[tuple[str, float, str]]:
    """Id, value and unit of what was measured."""
    for phase, count in ((without, 0), (with_them, consoles)):
        each = sorted(phase.exchange_ms)
        yield f"beside_{count}_consoles_exchange_p50_ms", statistics.median(each), "ms"
        yield f"beside_{count}_consoles_exchange_p99_ms", each[int(len(each) * 0.99)], "ms"
        yield f"beside_{count}_consoles_cpu_share", phase.cpu_share, "cores"
