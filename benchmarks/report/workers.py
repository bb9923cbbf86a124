"""The workers of ``make results``: processes that replay, one task after the other."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")
R = TypeVar("R")

FIRST_SEED = 101  # 0 to 100 are for development
PILOT_SEED = 100  # settings of the baselines are chosen on it


@dataclass(frozen=True, slots=True)
class Bench:
    """What a part runs on.

    Args:
        seeds: of the figures; each is one draw of requests for all policies.
        small: a run to see that it works; its figures mean nothing.
    """

    pool: Executor
    seeds: tuple[int, ...]
    small: bool = False

    def map(self, work: Callable[[T], R], tasks: Sequence[T], what: str) -> list[R]:
        """The results of all tasks, in order; a bar on stderr."""
        futures = [self.pool.submit(work, task) for task in tasks]
        return [f.result() for f in tqdm(futures, desc=what, file=sys.stderr, mininterval=1)]


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Spawned processes with one thread each."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        yield pool
