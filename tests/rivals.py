"""What a rival is shown in its tests: requests by a few numbers each."""

from dataclasses import dataclass

import numpy as np

from benchmarks.baselines.rival import Columns, Known, Seen
from controller.records import EngineLimits

ENGINE = EngineLimits(
    max_num_seqs=64, max_num_batched_tokens=2048, kv_tokens=100_000, block_tokens=16
)


@dataclass(frozen=True)
class Case:
    """One request; ``computed=None``: all but the token that it is about to compute."""

    prompt: int
    generated: int = 0
    computed: int | None = None
    allowed: int = 1000
    arrival_s: float = 0.0
    first_s: float = float("nan")
    last_s: float = float("nan")


def decode(prompt: int = 100, generated: int = 1, **more: float) -> Case:
    """One that decodes."""
    times = {"first_s": 0.0, "last_s": 0.0} | more
    return Case(prompt, generated, None, **times)  # type: ignore[arg-type]


def prefill(prompt: int, computed: int = 0, **more: float) -> Case:
    """One whose prompt is not computed to its end."""
    return Case(prompt, 0, computed, **more)  # type: ignore[arg-type]


def columns(cases: list[Case], name: str = "r") -> Columns:
    """As a scheduler shows them."""
    computed = [c.prompt + c.generated - 1 if c.computed is None else c.computed for c in cases]
    whole = [
        np.array(values, dtype=np.int64)
        for values in (
            computed,
            [c.prompt for c in cases],
            [c.generated for c in cases],
            [c.allowed for c in cases],
        )
    ]
    times = [
        np.array(values, dtype=float)
        for values in (
            [c.arrival_s for c in cases],
            [c.first_s for c in cases],
            [c.last_s for c in cases],
        )
    ]
    return Columns(tuple(f"{name}{k}" for k in range(len(cases))), *whole, *times)


def seen(
    running: list[Case],
    waiting: list[Case],
    *,
    engine: EngineLimits = ENGINE,
    now_s: float = 0.0,
    free: int | None = None,
) -> Seen:
    """An engine with these requests; ``free``: KV tokens, else what they leave."""
    runs = columns(running)
    left = engine.kv_tokens - int(runs.computed.sum())
    return Seen(
        now_s,
        engine,
        runs,
        len(waiting),
        lambda n: columns(waiting[:n], "w"),
        left if free is None else free,
    )


def known(itl_s: float | None = 0.05, ttft_s: float | None = None) -> Known:
    """A card whose step takes 10 ms, 0.1 ms a decode, 0.05 ms a prompt token."""
    return Known(
        ENGINE, itl_s, ttft_s, lambda d, kv, p, x: 0.01 + 1e-4 * d + 5e-5 * p + 0 * (kv + x)
    )
