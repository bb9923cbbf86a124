"""Anything that can be true of an engine of 256 requests with 20,000 tokens of KV memory."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from controller.config import BatchingConfig, parse_batching
from controller.models.arrays import Floats
from controller.records import EngineReport, StepSample
from tests.builders import ENGINE, moments_of, recent, report

MAX_RUNNING = ENGINE.max_num_seqs
MAX_TOKENS = ENGINE.max_num_batched_tokens


def examples(share: float) -> settings:
    """For a test whose examples take long: this share of the profile's."""
    return settings(max_examples=max(1, round(share * settings.default.max_examples)))


lengths = st.lists(st.tuples(st.integers(1, 8000), st.integers(1, 4000)), max_size=20)
latencies_s = st.floats(1e-4, 10.0)


@st.composite
def configs(draw: st.DrawFn, policy: str) -> BatchingConfig:
    """Any batching block that fits the engine."""
    low = draw(st.integers(1, MAX_RUNNING))
    block: dict[str, Any] = {
        "policy": policy,
        "max_running": {"min": low, "max": draw(st.none() | st.integers(low, MAX_RUNNING))},
        "sla": {"itl_ms": draw(st.none() | st.floats(1, 1000))},
        "overflow_probability": draw(st.none() | st.floats(0.001, 0.49)),
        "lease_s": draw(st.floats(1.5, 10)),
        "paper": {
            "memory": draw(st.sampled_from(["linear", "exact", "live"])),
            "l0": draw(st.sampled_from(["printed", "buffer"])),
            "units": draw(st.sampled_from(["tokens", "blocks"])),
            "alpha": draw(st.integers(1, 300)),
            "delta": draw(st.integers(0, 300)),
            "epsilon_d_ms": draw(st.floats(0, 50)),
            "size_chunk": draw(st.booleans()),
        },
    }
    return parse_batching(block)


@st.composite
def reports(draw: st.DrawFn) -> EngineReport:
    """Any report that can be true."""
    running, waiting = draw(st.integers(0, MAX_RUNNING)), draw(st.integers(0, 5000))
    decoding = draw(st.integers(0, running))
    window = recent(0.0, 0.0, steps=0)
    if draw(st.booleans()):
        decodes = draw(st.floats(1, MAX_RUNNING))
        window = recent(draw(latencies_s), decodes, decodes + draw(st.floats(0, MAX_TOKENS)))
    return report(
        running=running,
        waiting=waiting,
        decoding=decoding,
        prefilling=waiting + running - decoding,
        kv_used_tokens=draw(st.integers(0, ENGINE.kv_tokens)),
        lengths=moments_of(draw(lengths)),
        recent=window,
    )


samples = st.builds(
    StepSample,
    decodes=st.integers(0, MAX_RUNNING),
    kv_tokens=st.integers(0, ENGINE.kv_tokens),
    prefill_tokens=st.integers(0, MAX_TOKENS),
    prefill_context=st.integers(0, MAX_TOKENS * ENGINE.kv_tokens),
    duration_s=st.floats(0, 100),
)


@dataclass(frozen=True)
class Window:
    """One exchange period of an engine: what it holds, did and finished, and whose report arrived.

    Args:
        samples: its steps; each decoded what it says, whatever runs.
        answered: whether the controller's answer came back.
    """

    gap_s: float
    running: int
    waiting: int
    kv_used_tokens: int
    samples: list[StepSample]
    finished: list[tuple[int, int]]
    answered: bool


windows = st.lists(
    st.builds(
        Window,
        gap_s=st.floats(0.01, 20.0),
        running=st.integers(0, MAX_RUNNING),
        waiting=st.integers(0, 5000),
        kv_used_tokens=st.integers(0, ENGINE.kv_tokens),
        samples=st.lists(samples, max_size=4),
        finished=st.lists(st.tuples(st.integers(0, 8000), st.integers(0, 4000)), max_size=4),
        answered=st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@st.composite
def tables(draw: st.DrawFn, requests: int) -> Floats:
    """So many requests in groups of alike ones, as of ``ReplicaReport.batch_table``."""
    kinds = draw(st.lists(st.tuples(*[st.integers(0, 8000)] * 3), min_size=1, max_size=4))
    counts = [requests // len(kinds)] * (len(kinds) - 1)
    counts.append(requests - sum(counts))
    held = [[16 + said + more, said, left] for more, said, left in kinds]
    return np.column_stack([np.array(held, dtype=float), counts])[np.array(counts) > 0]
