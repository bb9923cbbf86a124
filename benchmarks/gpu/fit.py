"""A profile of a card from measured steps: a table of its dense part, lines for the rest, launches.

If a launch takes the CPU longer than the step takes the card, the step's time says nothing of
the card: such cells are left out of the table.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.model import shape_of
from controller.models.step_time import nonnegative
from controller.records import StepSample
from replicas.profiles.profile import Launch, TableCost
from replicas.profiles.profile_file import HBM_EFFICIENCY, PREFILL_EFFICIENCY


def held_out(samples: Sequence[StepSample]) -> tuple[list[StepSample], list[StepSample]]:
    """Four fifths to fit and one fifth to test, equal every time."""
    order = np.random.default_rng(0).permutation(len(samples))
    judged = {int(k) for k in order[: len(samples) // 5]}
    return (
        [s for k, s in enumerate(samples) if k not in judged],
        [s for k, s in enumerate(samples) if k in judged],
    )


def fit_table(samples: Sequence[StepSample], tokens: Sequence[int]) -> TableCost:
    """Times at these token counts, and the additions of KV, tokens x context and a prompt.

    Least squares of relative errors; nothing is negative.
    """
    n = np.array([s.decodes + s.prefill_tokens for s in samples], dtype=float)
    # Each token count is a mixture of the two nodes around it.
    nodes = np.array([np.interp(n, tokens, row) for row in np.eye(len(tokens))]).T
    kv, prompt, context = np.array([s.features[1:] for s in samples], dtype=float).T
    took = np.array([s.duration_s for s in samples])
    scale = np.array([*np.ones(len(tokens)), 1e5, 1e7, 1.0])
    columns = np.column_stack([nodes, kv, context, prompt > 0]) / scale / took[:, None]
    solved = nonnegative(
        columns.T @ columns + 1e-9 * np.eye(len(scale)), columns.T @ np.ones(len(took))
    )
    *dense_s, per_kv_s, per_context_s, mixed_s = (solved / scale).tolist()
    return TableCost(tuple(tokens), tuple(dense_s), per_kv_s, per_context_s, mixed_s)


GPU_BOUND = 1.15  # times the launch


def fit_launch(alone: Sequence[StepSample], graph_tokens: int) -> Launch:
    """The time of a launch, from chunks alone between steps of decodes; seconds.

    The shortest step beyond the largest graph is the least bound by the card.
    """
    small = [s.duration_s for s in alone if s.decodes + s.prefill_tokens <= graph_tokens]
    large = [s.duration_s for s in alone if s.decodes + s.prefill_tokens > graph_tokens]
    graph_s = float(np.median(small[: max(len(small) // 2, 1)])) if small else 0.0
    return Launch(graph_s, large[0] if large else graph_s, graph_tokens)


def bound_by_card(samples: Sequence[StepSample], launch: Launch) -> list[StepSample]:
    """Those that took longer than their launch."""
    return [
        s for s in samples if s.duration_s > GPU_BOUND * launch.step_s(s.decodes, s.prefill_tokens)
    ]


def profile_entry(
    cost: TableCost, launch: Launch, model: Path, card: dict[str, Any], kv_tokens: int
) -> dict[str, Any]:
    """The table in the format of ``configs/profiles``."""
    shape = shape_of(model)
    flops = 4 * shape["hidden"] * shape["layers"]
    return {
        "gpu": card["gpu"],
        "model": model.name,
        "tensor_parallel": 1,
        **shape,
        # Bandwidth and rate that give the measured times in the format's formulas.
        "hbm_gb_per_s": shape["kv_bytes_per_token"]
        / (HBM_EFFICIENCY * 1e9 * max(cost.per_kv_s, 1e-12)),
        "bf16_tflops": flops / (PREFILL_EFFICIENCY * 1e12 * max(cost.per_context_s, 1e-16)),
        "mem_gb": card["mem_gb"],
        "kv_capacity_tokens": kv_tokens,
        "tokens": list(cost.tokens),
        "linear_ms_per_layer": [1000 * s / shape["layers"] for s in cost.dense_s],
        "all_reduce_ms_per_layer": [0.0] * len(cost.tokens),
        "host_ms": 0.0,
        "mixed_ms": 1000 * cost.mixed_s,
        "launch_ms": 1000 * launch.graph_s,
        "launch_eager_ms": 1000 * launch.eager_s,
        "graph_tokens": launch.graph_tokens,
    }


def write_profile(path: Path, name: str, source: str, entry: dict[str, Any]) -> str:
    """A file with this profile alone; the spec by which ``load_profile`` finds it."""
    path.write_text(json.dumps({"source": source, "profiles": {name: entry}}, indent=1) + "\n")
    return f"{path}:{name}"


def errors(cost: TableCost, samples: Sequence[StepSample]) -> tuple[float, float]:
    """Mean and p99 of the relative error of the predicted times, %; NaN if there are none."""
    if not samples:
        return math.nan, math.nan
    took = np.array([s.duration_s for s in samples])
    off = 100 * np.abs(np.array([cost.step_s(*s.features) for s in samples]) / took - 1)
    return float(off.mean()), float(np.percentile(off, 99))
