"""The workers of ``make results``: processes that replay, one task after the other."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TypeVar

from tqdm import tqdm

from benchmarks.report.cached import CachedRuns

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Bench:
    """The workers and settings of a bench.

    Args:
        seeds: of the figures; each gives one set of requests for all policies.
        small: a test run; its figures mean nothing.
        rivals: only these named rivals; empty: all.
        cache: results of earlier runs; None: no cache.
    """

    pool: Executor
    seeds: tuple[int, ...]
    small: bool = False
    cache: CachedRuns | None = None
    rivals: tuple[str, ...] = ()

    def asked_rivals(self, all_of_them: Iterable[str]) -> tuple[str, ...]:
        """The requested ones among these."""
        return tuple(one for one in all_of_them if not self.rivals or one in self.rivals)

    def map(
        self,
        work: Callable[[T], R],
        tasks: Sequence[T],
        what: str,
    ) -> list[R]:
        """The results of all tasks, in order; a bar on stderr."""
        found: dict[int, R] = {}
        waiting: dict[Future[R], int] = {}
        for place, task in enumerate(tasks):
            known = self.cache and self.cache.get(work, task)
            if known:
                (found[place],) = known
            else:
                waiting[self.pool.submit(work, task)] = place
        bar = tqdm(total=len(tasks), initial=len(found), desc=what, file=sys.stderr, mininterval=1)
        failed: BaseException | None = None
        for future in as_completed(waiting):
            if future.cancelled():
                continue
            failed = failed or future.exception()
            if failed:
                # Waiting tasks would run for hours before the error is shown.
                for other in waiting:
                    other.cancel()
            if future.exception() is None:
                place = waiting[future]
                found[place] = future.result()
                if self.cache:
                    self.cache.add(work, tasks[place], found[place])
            bar.update()
        bar.close()
        if failed:
            raise failed
        return [found[place] for place in range(len(tasks))]


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Spawned processes with one thread each."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        yield pool
