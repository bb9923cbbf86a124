"""Records with plausible numbers, of which a test names only those it is about."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from controller.config import BatchingConfig, parse_batching
from controller.law.rows import RowHistory
from controller.law.step_model import Fit, guess
from controller.models.histogram import HistogramCounter, LogHistogram
from controller.models.lengths import LengthMoments
from controller.models.step_time import StepStats, fitted_features
from controller.models.survival import AGES, BINS, Exposure, Survival, length_bin
from controller.policies.base import Pool, Seen
from controller.records import (
    BatchLimits,
    EngineLimits,
    EngineReport,
    EngineState,
    PackedRows,
    RecentSteps,
    StepSample,
)
from replicas.engine.governor import Governor
from replicas.engine.step_log import StepLog

ENGINE = EngineLimits(
    max_num_seqs=256, max_num_batched_tokens=2048, kv_tokens=20_000, block_tokens=16
)


def engine(**overrides: Any) -> EngineLimits:
    """256 requests, 2048 tokens a step, 20,000 tokens of KV memory in blocks of 16."""
    return replace(ENGINE, **overrides)


def batching(**block: Any) -> BatchingConfig:
    """The ``batching`` block with these keys; ``paper`` if no policy is named."""
    return parse_batching({"policy": "paper", **block})


def exposure(lengths: Iterable[int]) -> Exposure:
    """What whole answers of these lengths show."""
    ended = np.bincount([length_bin(one) for one in lengths], minlength=BINS).astype(float)
    return Exposure(ended, ended[::-1].cumsum()[::-1])


def outlasting(survival: Survival, tokens: int) -> float:
    """P(output > tokens)."""
    return float(np.exp(-np.interp(tokens, AGES, survival.hazard)))


def moments_of(lengths: Iterable[tuple[int, int]]) -> LengthMoments:
    """The moments of requests with these (input, output) tokens."""
    pairs = list(lengths)
    return LengthMoments(
        n=len(pairs),
        input=sum(i for i, _ in pairs),
        output=sum(o for _, o in pairs),
        input_sq=sum(i * i for i, _ in pairs),
        output_sq=sum(o * o for _, o in pairs),
        cross=sum(i * o for i, o in pairs),
    )


def sample(**overrides: Any) -> StepSample:
    """A step of 10 decodes over 2,000 KV tokens in 20 ms."""
    plain = StepSample(
        decodes=10, kv_tokens=2000, prefill_tokens=0, prefill_context=0, duration_s=0.02
    )
    return replace(plain, **overrides)


def stats_of(samples: Iterable[StepSample]) -> StepStats:
    """The sufficient statistics of these steps."""
    steps = list(samples)
    v = fitted_features(np.array([[1.0, *s.features, s.prefill_tokens > 0] for s in steps]))
    took_s = np.array([s.duration_s for s in steps])
    a, b = v.T @ v, v.T @ took_s
    return StepStats(
        tuple(a.ravel().tolist()), tuple(b.tolist()), len(steps), float(took_s @ took_s)
    )


def rows_of(samples: Iterable[StepSample]) -> PackedRows:
    """The rows of these steps, the first of which is the engine's first."""
    log = StepLog()
    for s in samples:
        log.add(s)
    return log.packed()


def linear_steps(count: int = 200, c0: float = 0.02, c1: float = 2e-4) -> list[StepSample]:
    """Steps of 1 to 100 decodes that take exactly c0 + c1 per decode."""
    return [
        sample(decodes=b, kv_tokens=0, duration_s=c0 + c1 * b)
        for b in (1 + (37 * k) % 100 for k in range(count))
    ]


def histogram_of(durations_s: Iterable[float]) -> LogHistogram:
    """A histogram that counted these durations."""
    counter = HistogramCounter()
    for duration_s in durations_s:
        counter.add(duration_s)
    return counter.snapshot()


def recent(itl_s: float, decodes: float, tokens: float = 0.0, steps: int = 10) -> RecentSteps:
    """A window of ``steps`` with this mean latency and batch."""
    return RecentSteps(steps=steps, itl_s=itl_s, decodes=decodes, tokens=tokens)


REPORT = EngineReport(
    replica_id="r1",
    group="g",
    seq=1,
    engine=ENGINE,
    mode="leased",
    reason="start",
    max_running=256,
    token_budget=2048,
    running=10,
    waiting=5,
    decoding=10,
    prefilling=5,
    kv_used_tokens=2000,
    arrivals=20,
    finished=5,
    preemptions=0,
    arrival_rate_per_s=2.0,
    recent=RecentSteps(),
    lengths=LengthMoments(),
    itl=LogHistogram(),
    ttft=LogHistogram(),
)


def report(**overrides: Any) -> EngineReport:
    """Replica r1 of group g with 10 requests running and 5 waiting, nothing finished."""
    return replace(REPORT, **overrides)


def pool(**overrides: Any) -> Pool:
    """A group of one replica of which nothing is known."""
    return replace(Pool(replicas=1), **overrides)


def seen(
    config: BatchingConfig, known: Pool | None = None, now_s: float = 0.0, **of_report: Any
) -> Seen:
    """What a policy decides from, of ``report`` with these fields."""
    said, history = report(**of_report), RowHistory()
    history.add(said.rows)
    fit = Fit(history.rows, guess(config.sla.itl_s or 0.05), 0.2, said.engine.graph_tokens)
    return Seen(config, said, history.rows, fit, known or pool(), now_s)


def limits(**overrides: Any) -> BatchLimits:
    """A 5 s lease on 64 running requests, set by the SLA."""
    plain = BatchLimits(lease_s=5.0, max_running=64, token_budget=None, reason="sla")
    return replace(plain, **overrides)


def state(running: int = 10, waiting: int = 0, kv_used_tokens: int = 0) -> EngineState:
    """What the engine holds before a step."""
    return EngineState(running, waiting, kv_used_tokens)


def governor(
    config: BatchingConfig | None = None,
    limits_of_engine: EngineLimits = ENGINE,
    *,
    leased: bool = True,
    now_s: float = 0.0,
    group: str = "g",
) -> Governor:
    """A Governor of group g that expects a controller and has no limits from it yet."""
    config = config or batching()
    return Governor(config, limits_of_engine, has_controller=leased, now_s=now_s, group=group)
