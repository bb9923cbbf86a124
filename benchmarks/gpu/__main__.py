"""The worth of control on this card, the most important parts first, until the time is over.

python -m benchmarks.gpu --out DIR [--budget-s 520] [--parts steps overhead serve]
"""

import argparse
import json
import os
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu.budget import Budget
from benchmarks.gpu.card import describe
from benchmarks.gpu.tuning import WORKLOADS, Tuner
from benchmarks.report.document import ROOT

PARTS = ("steps", "overhead", "serve")
FORMERLY = {"beside": "overhead"}  # for one release
SLA_STEPS = 1.85  # the tight SLA in steps of one request: 50 ms on the machine of the paper
RELAXED_MS = 25.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "gpu")
    parser.add_argument("--budget-s", type=float, default=520.0)
    parser.add_argument(
        "--parts", nargs="+", default=list(PARTS), choices=PARTS, type=lambda n: FORMERLY.get(n, n)
    )
    parser.add_argument("--itl-ms", type=float, help="default: 1.85 steps of one request")
    parser.add_argument("--seconds", type=float, default=12.0, help="duration of arrivals in a run")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--try", dest="tiny", action="store_true", help="use the tiny model, on any machine"
    )
    args = parser.parse_args()
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    if find_spec("flashinfer") is None:  # vLLM expects it on Hopper
        os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    budget = Budget(args.budget_s)
    args.out.mkdir(parents=True, exist_ok=True)
    card = describe()
    print(card["described"], flush=True)
    tuner = Tuner()
    try:
        _run(args, budget, card, tuner)
    finally:
        tuner.close()


def _run(args: argparse.Namespace, budget: Budget, card: dict[str, object], tuner: Tuner) -> None:
    # Importing vLLM takes seconds, and the processes of the tuner begin before.
    from benchmarks.gpu.contest import LOADS, Contest, Sizes
    from benchmarks.gpu.engine import Engine, Size
    from benchmarks.gpu.fit import (
        bound_by_card,
        errors,
        fit_launch,
        fit_table,
        held_out,
        profile_entry,
        write_profile,
    )
    from benchmarks.gpu.grid import CARD, TRY, measure
    from benchmarks.gpu.model import make_model
    from controller.config import parse_batching
    from controller.records import StepSample
    from replicas.profiles.profile_file import load_profile
    from simulator.workloads.requests import Request

    began_s = time.monotonic()
    model = make_model(ROOT / ".cache", tiny=args.tiny)
    # On CPU this is a share of the machine's memory, which others use as well.
    size = (
        Size(32, 512, 2048, 0.1, enforce_eager=True, block_size=32)
        if args.tiny
        else Size(1024, 8192, 20_480)
    )
    engine = Engine(model, size)
    static = engine.governor(parse_batching({"policy": "static"}))
    engine.serve([Request(0.0, 64, 16, 16)] * 8, static)  # the first steps are cold
    print(f"engine up after {time.monotonic() - began_s:.0f} s, {engine.kv_tokens} KV tokens")
    grid = TRY if args.tiny else CARD
    steps = args.out / "steps.json"
    if "steps" in args.parts:
        part = budget.part(args.budget_s * 0.16)
        cells = measure(engine, grid, part)
        steps.write_text(json.dumps([[(*s.features, s.duration_s) for s in one] for one in cells]))
        print(f"{len(cells[0])} cells, {part.left_s:.0f} s left of their part", flush=True)
    samples, alone = ([StepSample(*s) for s in one] for one in json.loads(steps.read_text()))
    if not samples:
        raise SystemExit(f"--budget-s {args.budget_s:g} left no time for step times: allow more")
    launch = fit_launch(alone, engine.graph_tokens)
    samples = bound_by_card(samples, launch)
    fitted, judged = held_out(samples)
    most = max(s.decodes + s.prefill_tokens for s in samples)
    nodes = [t for t in grid.tokens if t <= most]
    off = errors(fit_table(fitted, nodes), judged)
    cost = fit_table(samples, nodes)
    name = "tiny-try" if args.tiny else f"{card['gpu']}-llama-8b-vllm"
    spec = write_profile(
        args.out / "card.json",
        name,
        f"benchmarks.gpu on {card['described']}, dummy weights",
        profile_entry(cost, launch, model, card, engine.kv_tokens),
    )
    profile = load_profile(spec)
    tight_ms = args.itl_ms or round(SLA_STEPS * profile.step_s(1, 500, 0, 0) * 1000, 1)
    sizes = Sizes(seconds=args.seconds, skip_s=args.seconds / 4)
    if args.tiny:
        sizes = replace(sizes, overhead_requests=32)
    contest = Contest(engine, profile, spec, tuner, args.out, sizes)
    contest.row("gpu_table_mape", off[0], "%", 5)
    contest.row("gpu_table_p99", off[1], "%", 15)
    contest.row("gpu_step_of_one", 1000 * profile.step_s(1, 500, 0, 0), "ms")
    contest.row("gpu_launch", 1000 * launch.graph_s, "ms")
    contest.row("gpu_launch_eager", 1000 * launch.eager_s, "ms")
    serves = [(WORKLOADS[0], tight_ms, load) for load in LOADS]
    serves += [
        (workload, tight_ms if args.tiny else RELAXED_MS, LOADS[0]) for workload in WORKLOADS[1:]
    ]
    cases = [contest.case_of(*serve) for serve in serves]
    if "serve" in args.parts:
        for case in cases:
            contest.tune(case)
    if "overhead" in args.parts:
        contest.overhead(budget.part(args.budget_s * 0.1))
    for case, (_, _, load) in zip(cases, serves, strict=True):
        if "serve" in args.parts:
            contest.serve(case, load, args.rounds, budget)
    left_out = ", ".join(dict.fromkeys(budget.left_out)) or "nothing"
    print(f"{card['described']}; left out: {left_out}; {budget.left_s:.0f} s left")
    contest.end("gpu")


if __name__ == "__main__":
    main()
