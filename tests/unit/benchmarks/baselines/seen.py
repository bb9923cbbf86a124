"""An engine as a rival sees it, by a few numbers of each request."""

import math

import numpy as np

from benchmarks.baselines.rival import Columns, Known, Seen
from controller.records import EngineLimits

ENGINE = EngineLimits(
    max_num_seqs=64, max_num_batched_tokens=2048, kv_tokens=100_000, block_tokens=16
)


def step_s(decodes: float, kv: float, prefill: float, context: float) -> float:
    """Just below 10 ms, and 0.1 ms for each new token."""
    return 0.00995 + 1e-4 * (decodes + prefill)


KNOWN = Known(ENGINE, 0.05, None, step_s)


def decode(last_s: float, generated: int = 1, arrival_s: float = 0.0) -> tuple[float, ...]:
    """A request that decodes: prompt of 100 tokens."""
    return 100 + generated - 1, 100, generated, arrival_s, last_s


def prompt(tokens: int, arrival_s: float = 0.0, computed: int = 0) -> tuple[float, ...]:
    """A request in prefill, or one that waits."""
    return computed, tokens, 0, arrival_s, math.nan


def columns(rows: list[tuple[float, ...]], name: str) -> Columns:
    """Requests ``name0``, ``name1``, ..."""
    computed, size, generated, arrival_s, last_s = np.array(rows, float).reshape(-1, 5).T
    return Columns(
        tuple(f"{name}{k}" for k in range(len(rows))),
        computed.astype(np.int64),
        size.astype(np.int64),
        generated.astype(np.int64),
        np.full(len(rows), 100),
        arrival_s,
        last_s,
        last_s,
    )


def seen(
    running: list[tuple[float, ...]],
    waiting: list[tuple[float, ...]],
    now_s: float = 1.0,
    engine: EngineLimits = ENGINE,
) -> Seen:
    """The engine before a step, with enough KV memory."""
    return Seen(
        now_s,
        engine,
        columns(running, "r"),
        len(waiting),
        lambda n: columns(waiting[:n], "w"),
        100_000,
    )
