"""A client in several processes, for more chunks a second than one process reads."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from serve_app.demo.client import Answer, Ask, send

LEAD_S = 1.0  # for the shares to reach every process before the first request


@dataclass(frozen=True, slots=True)
class Sent:
    """What one run's clients saw.

    Args:
        cpu_share: of a core, by process: near 1, the client waited for itself.
    """

    answers: list[Answer]
    cpu_share: list[float]
    took_s: float

    def figures(self, itl_ms: float) -> dict[str, tuple[float, str]]:
        """Value and unit of each figure, by its name."""
        gaps_ms = 1000 * np.array([g for a in self.answers for g in a.itl_s] or [np.nan])
        ttft_ms = [1000 * a.ttft_s for a in self.answers if a.ttft_s is not None] or [np.nan]
        late_ms = [1000 * a.late_s for a in self.answers] or [np.nan]
        return {
            "late": (100 * float(np.mean(gaps_ms > itl_ms)), "%"),
            "itl_p50": (float(np.percentile(gaps_ms, 50)), "ms"),
            "itl_p99": (float(np.percentile(gaps_ms, 99)), "ms"),
            "ttft_p50": (float(np.percentile(ttft_ms, 50)), "ms"),
            "ttft_p99": (float(np.percentile(ttft_ms, 99)), "ms"),
            "tokens_per_s": (sum(a.tokens for a in self.answers) / self.took_s, "tokens/s"),
            "tokens_per_chunk": (
                sum(a.tokens for a in self.answers)
                / max(sum(len(a.itl_s) + (a.ttft_s is not None) for a in self.answers), 1),
                "tokens",
            ),
            "requests": (len(self.answers), "requests"),
            "failed": (sum(not a.whole for a in self.answers), "requests"),
            "client_late_p99": (float(np.percentile(late_ms, 99)), "ms"),
            "client_cpu_most": (max(self.cpu_share), "cores"),
            "took": (self.took_s, "s"),
        }


def ready() -> float:
    """Nothing but this module's imports, in a process of the pool."""
    time.sleep(0.2)  # so that each process takes one
    return time.perf_counter()


def _share(url: str, model: str, asks: list[Ask], begin_s: float) -> tuple[list[Answer], float]:
    # CLOCK_MONOTONIC is the same in every process of a machine.
    time.sleep(max(begin_s - time.perf_counter(), 0.0))
    from_s, cpu_s = time.perf_counter(), time.process_time()
    answers = asyncio.run(send(url, model, asks))
    share = (time.process_time() - cpu_s) / (time.perf_counter() - from_s)
    return answers, share


def send_from(
    pool: ProcessPoolExecutor,
    clients: int,
    url: str,
    model: str,
    asks: Sequence[Ask],
    most_s: float,
) -> Sent:
    """Send ``asks`` in turn from each of the pool's ``clients`` processes.

    Raises:
        TimeoutError: an answer took longer than ``most_s``.
    """
    begin_s = time.perf_counter() + LEAD_S
    shares = [list(asks[k::clients]) for k in range(clients)]
    futures = [pool.submit(_share, url, model, share, begin_s) for share in shares]
    done = [f.result(max(begin_s + most_s - time.perf_counter(), 0.1)) for f in futures]
    took_s = time.perf_counter() - begin_s
    return Sent([a for answers, _ in done for a in answers], [share for _, share in done], took_s)
