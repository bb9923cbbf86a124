"""Pass 1: what a step takes on this card, a profile of it, and how far a replay on that is off.

    python -m benchmarks.gpu.step_time --out DIR

Steps are taken over a grid of decodes, their KV tokens and prefill chunks. One cell in five is held
out: the two models, the straight line that ``adaptive`` learns and the table that the replay uses,
are fitted to the others. Then one workload runs on the card and in the replay on the new profile.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.gpu.card import describe
from benchmarks.gpu.engine import Engine, Size
from benchmarks.gpu.model import make_model, shape_of
from benchmarks.live.client_view import of_trace
from benchmarks.replay.engine import Ground, replay
from benchmarks.replay.fluid import fluid_limit_per_s
from benchmarks.report.document import ROOT
from benchmarks.virtual.plan import EngineOptions, parse_policy
from benchmarks.workloads.catalog import load_workload
from benchmarks.workloads.requests import length_stats
from benchmarks.workloads.traffic import draw_traffic
from controller.config import Sla, parse_batching
from controller.models.step_time import FEATURES, SCALE, StepModel, nonnegative
from controller.records import StepSample
from replicas.profile import StepProfile
from replicas.profile_file import (
    HBM_EFFICIENCY,
    PREFILL_EFFICIENCY,
    load_profile,
)

STEPS = 12  # of a cell; the first two are left out, of the rest the median counts
TARGET_OFF = 0.10  # the replay from the card
# For a dry run. On CPU the share is of the machine's memory, which others use as well.
TINY = Size(32, 512, 2048, gpu_memory_utilization=0.1, enforce_eager=True, block_size=32)
SLA_STEPS = 1.85  # the SLA in steps of one request


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells: decodes x their context, and prompts computed in chunks beside decodes."""

    decodes: tuple[int, ...]
    contexts: tuple[int, ...]
    chunks: tuple[int, ...]
    prompts: tuple[int, ...]
    beside: tuple[int, ...]


CARD = Grid(
    (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512),
    (64, 512, 1536),
    (64, 128, 256, 512, 1024, 2048, 4096),
    (4096, 12288),
    (0, 16, 64, 192),
)
TRY = Grid((1, 2, 4, 8, 16, 24), (32, 128), (32, 64, 128, 256), (512,), (0, 4))


def decode_cells(engine: Engine, grid: Grid, until_s: float) -> list[StepSample]:
    """Steps that only decode, from few requests to many, at each context."""
    found = []
    cells = [(context, n) for context in grid.contexts for n in grid.decodes]
    for context, n in tqdm(cells, desc="decodes"):
        if time.monotonic() > until_s or n * (context + STEPS) > engine.kv_tokens:
            continue
        samples = _steps(engine, [context] * n, STEPS, None)
        found += _median([s for s in samples if s.decodes == n and not s.prefill_tokens][2:])
    return found


def prefill_cells(engine: Engine, grid: Grid, until_s: float) -> list[StepSample]:
    """Steps that compute a chunk of a prompt beside decodes; every step is a cell of its own."""
    found = []
    cells = [(p, c, b) for p in grid.prompts for c in grid.chunks for b in grid.beside if c <= p]
    for prompt, chunk, beside in tqdm(cells, desc="prefill"):
        if time.monotonic() > until_s or beside + chunk > engine.size.max_num_batched_tokens:
            continue
        samples = _steps(engine, [256] * beside, 10**6, (prompt, chunk))
        mixed = [s for s in samples if s.prefill_tokens == chunk and s.decodes == beside]
        # A long prompt in small chunks has many steps that are nearly the same.
        found += mixed[1 :: max(len(mixed) // 8, 1)]
    return found


def _steps(
    engine: Engine, contexts: Sequence[int], steps: int, prompt: tuple[int, int] | None
) -> list[StepSample]:
    """All steps of a batch that is filled first, then measured; it is cleared away after."""
    scheduler = engine.scheduler
    for context in contexts:
        engine.add(context, 10**6 if prompt else steps + 6)
    while scheduler.waiting or any(not r.num_output_tokens for r in scheduler.running):
        engine.step()
    scheduler.samples, scheduler.recording = [], True
    if prompt is None:
        while engine.busy():
            engine.step()
    else:
        scheduler.token_budget = len(contexts) + prompt[1]
        last = engine.add(prompt[0], 2)
        while last in scheduler.requests:
            engine.step()
        scheduler.token_budget = None
    scheduler.recording = False
    engine.core.abort_requests(list(scheduler.requests))
    while engine.busy():
        engine.step()
    return list(scheduler.samples)


def _median(samples: Sequence[StepSample]) -> list[StepSample]:
    if not samples:
        return []
    middle = sorted(samples, key=lambda s: s.duration_s)[len(samples) // 2]
    return [middle]


def held_out(samples: Sequence[StepSample]) -> tuple[list[StepSample], list[StepSample]]:
    """Four fifths to fit, one fifth to judge by; the same ones every time."""
    order = np.random.default_rng(0).permutation(len(samples))
    judged = {int(k) for k in order[: len(samples) // 5]}
    return (
        [s for k, s in enumerate(samples) if k not in judged],
        [s for k, s in enumerate(samples) if k in judged],
    )


def fit_line(samples: Sequence[StepSample]) -> StepModel:
    """The straight line of the controller, by least squares of relative errors."""
    took = np.array([s.duration_s for s in samples])
    features = np.array([(1.0, *_features(s), float(s.prefill_tokens > 0)) for s in samples])
    columns = features / SCALE / took[:, None]
    normal = columns.T @ columns + 1e-9 * np.eye(FEATURES)
    costs = (nonnegative(normal, columns.T @ np.ones(len(took))) / SCALE).tolist()
    line = StepModel.of(costs, 0.0)
    off = [line.predict_s(*_features(s)) - s.duration_s for s in samples]
    return StepModel.of(costs, float(np.std(off)))


def fit_table(
    samples: Sequence[StepSample], tokens: Sequence[int]
) -> tuple[tuple[float, ...], float, float]:
    """Times of the dense part at ``tokens``, and seconds per KV token and per token x context.

    Least squares of relative errors; nothing is negative.
    """
    n = np.array([s.decodes + s.prefill_tokens for s in samples], dtype=float)
    # Each token count is a mixture of the two nodes around it.
    nodes = np.array([np.interp(n, tokens, row) for row in np.eye(len(tokens))]).T
    kv = np.array([s.kv_tokens for s in samples], dtype=float)
    context = np.array([s.prefill_context for s in samples], dtype=float)
    took = np.array([s.duration_s for s in samples])
    scale = np.array([*np.ones(len(tokens)), 1e5, 1e7])
    columns = np.column_stack([nodes, kv, context]) / scale / took[:, None]
    solved = nonnegative(
        columns.T @ columns + 1e-9 * np.eye(len(scale)), columns.T @ np.ones(len(took))
    )
    values = (solved / scale).tolist()
    return tuple(values[:-2]), values[-2], values[-1]


def profile_entry(
    samples: Sequence[StepSample], tokens: Sequence[int], model: Path, card: dict[str, Any], kv: int
) -> dict[str, Any]:
    """A table in the format of ``configs/profiles``."""
    shape = shape_of(model)
    top = max(s.decodes + s.prefill_tokens for s in samples)
    used = [*(t for t in tokens if t < top), top]
    dense_s, per_kv_s, per_context_s = fit_table(samples, used)
    flops = 4 * shape["hidden"] * shape["layers"]
    return {
        "gpu": card["gpu"],
        "model": model.name,
        "tensor_parallel": 1,
        **shape,
        # Bandwidth and rate are those at which the format's formulas give what was measured.
        "hbm_gb_per_s": shape["kv_bytes_per_token"] / (HBM_EFFICIENCY * 1e9 * max(per_kv_s, 1e-12)),
        "bf16_tflops": flops / (PREFILL_EFFICIENCY * 1e12 * max(per_context_s, 1e-16)),
        "mem_gb": card["mem_gb"],
        "kv_capacity_tokens": kv,
        "tokens": used,
        "linear_ms_per_layer": [1000 * s / shape["layers"] for s in dense_s],
        "all_reduce_ms_per_layer": [0.0] * len(used),
        "host_ms": 0.0,
    }


def errors(predicted: Sequence[float], samples: Sequence[StepSample]) -> tuple[float, float]:
    """Mean and p99 of the relative error, %."""
    took = np.array([s.duration_s for s in samples])
    off = 100 * np.abs(np.array(predicted) / took - 1)
    return float(off.mean()), float(np.percentile(off, 99))


def compare(
    engine: Engine, profile: StepProfile, workload: str, load: float, seconds: float, most: int
) -> list[dict[str, Any]]:
    """One workload on the card and in the replay on its profile: stack over replay."""
    step_ms = profile.step_s(1, 500, 0, 0) * 1000
    sla = Sla(itl_ms=round(SLA_STEPS * step_ms, 1))
    drawn = load_workload(workload)
    stats = length_stats(draw_traffic(drawn, 5000, None, 0).requests)
    rate = load * fluid_limit_per_s(profile, stats, sla.itl_s)
    traffic = draw_traffic(drawn, max(min(int(rate * seconds), most), 20), None, 0)
    longest = engine.size.max_model_len
    requests = [r for r in traffic.at(rate) if r.input_tokens + r.output_tokens < longest]
    engine.follow(parse_batching({"policy": "adaptive", "sla": {"itl_ms": sla.itl_ms}}))
    run = engine.serve(requests, f"{workload} on the card")
    options = EngineOptions(
        max_num_seqs=engine.size.max_num_seqs,
        max_num_batched_tokens=engine.size.max_num_batched_tokens,
        block_size=engine.scheduler.block_size,
    )
    trace = replay(tuple(requests), parse_policy("adaptive", sla, options), Ground(profile))
    seen, replayed = run.seen, of_trace(trace)
    tokens_per_s = sum(o.tokens for o in trace.outcomes) / trace.end_s
    figures = (
        ("throughput", run.tokens_per_s / tokens_per_s),
        ("mean_itl", float(seen.gap_s.mean() / replayed.gap_s.mean())),
        ("p99_itl", seen.p99_itl_ms / replayed.p99_itl_ms),
    )
    return [
        {"id": f"gpu_replay_{name}", "value": round(ratio, 4), "unit": "ratio",
         "target": [1 - TARGET_OFF, 1 + TARGET_OFF]}
        for name, ratio in figures
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "gpu")
    parser.add_argument("--try", dest="tiny", action="store_true", help="the tiny model, anywhere")
    parser.add_argument("--budget-s", type=float, default=420, help="for the grid")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    until_s = time.monotonic() + args.budget_s
    model = make_model(ROOT / ".cache", tiny=args.tiny)
    size = TINY if args.tiny else Size(1024, 8192, 20_480)
    grid = TRY if args.tiny else CARD
    engine = Engine(model, size)
    card = describe()
    engine.follow(parse_batching({"policy": "static"}))
    _steps(engine, [64] * 4, 20, None)  # the first steps are cold
    samples = decode_cells(engine, grid, until_s) + prefill_cells(engine, grid, until_s)
    (args.out / "steps.json").write_text(
        json.dumps([[getattr(s, f) for f in StepSample.__slots__] for s in samples])
    )
    fitted, judged = held_out(samples)
    line = fit_line(fitted)
    tokens = sorted({*grid.decodes, *grid.chunks})
    name = "tiny-try" if args.tiny else f"{card['gpu']}-llama-8b-vllm"
    path = args.out / "card.json"

    def write(used: Sequence[StepSample]) -> StepProfile:
        entry = profile_entry(used, tokens, model, card, engine.kv_tokens)
        source = f"measured by benchmarks.gpu.step_time on {card['described']}, dummy weights"
        path.write_text(json.dumps({"source": source, "profiles": {name: entry}}, indent=1) + "\n")
        return load_profile(f"{path}:{name}")

    by_line = errors([line.predict_s(*_features(s)) for s in judged], judged)
    table = write(fitted)
    by_table = errors([table.step_s(*_features(s)) for s in judged], judged)
    rows: list[dict[str, Any]] = [
        {"id": f"gpu_{kind}_{what}", "value": round(value, 3), "unit": "%", "target": target}
        for kind, found in (("line", by_line), ("table", by_table))
        for what, value, target in (("mape", found[0], 5), ("p99", found[1], 15))
    ]
    profile = write(samples)
    rows += compare(engine, profile, "exponential:257,62", 0.7, 60.0, 60 if args.tiny else 5000)
    print(f"{card['described']}; {len(samples)} cells, {len(judged)} held out; {path}")
    print(f"line: {line}")
    print(json.dumps({"bench": "gpu-step-time", "rows": rows}))


def _features(s: StepSample) -> tuple[int, int, int, int]:
    return s.decodes, s.kv_tokens, s.prefill_tokens, s.prefill_context


if __name__ == "__main__":
    main()
