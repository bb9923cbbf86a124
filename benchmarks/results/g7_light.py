"""G7: a load that does not bind, where the policy may cost nothing; and its own time per step."""

import gc
import os

from benchmarks.cost.scheduler import own_code_us, percentile
from benchmarks.report.bootstrap import geometric_mean, mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.workers import Bench
from benchmarks.results.g4_phases import PROFILE, phase
from controller.config import Sla
from replicas.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.replay.measure import summarise
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.traffic import draw_phases

WORKLOAD = "azure-2023-conversation"
LOAD = 0.3  # of the fluid limit at 50 ms
SLAS = {"no SLA": Sla(), "500 ms": Sla(itl_ms=500, ttft_ms=60_000)}
RUN_S = 300.0
POLICIES = ("adaptive", "static")
RUNNING, RUNS = 256, 3
TARGET_US = 300.0

Found = dict[tuple[str, str], tuple[float, float]]  # tokens/s, mean TTFT in ms


def serve(task: tuple[int, float]) -> Found:
    """Both policies under each SLA, on the draw of one seed and for so many seconds."""
    seed, run_s = task
    profile = load_profile(PROFILE)
    requests = draw_phases([phase(WORKLOAD, profile, LOAD, run_s)], None, seed)
    found = {}
    for name, sla in SLAS.items():
        for spec in POLICIES:
            plan = parse_policy(spec, sla, engine_of(profile))
            summary = summarise(spec, replay(requests, plan, Ground(profile)), sla)
            found[name, spec] = summary.output_tokens_per_s, summary.ttft_ms.mean or 0.0
    return found


def own_code(runs: int) -> list[tuple[float, float]]:
    """p99 of own code per step, microseconds, in several runs: decodes alone, and with prompts."""
    gc.freeze()  # as EngineCore does at the end of its start
    plain, mixed = (
        [
            percentile(own_code_us(RUNNING, mixed=with_prompts, policy="adaptive"), 99)
            for _ in range(runs)
        ]
        for with_prompts in (False, True)
    )
    return list(zip(plain, mixed, strict=True))


def run(bench: Bench) -> Section:
    """The replays, then the timing while nothing else runs here."""
    run_s = 30.0 if bench.small else RUN_S
    found = bench.map(serve, [(seed, run_s) for seed in bench.seeds], "G7 light load")
    took = bench.map(own_code, [1 if bench.small else RUNS], "G7 own code")[0]
    rows, lines = [], []
    for name in SLAS:
        id_ = name.replace(" ", "_")
        rates = [f[name, "adaptive"][0] / f[name, "static"][0] for f in found]
        ttfts = [f[name, "static"][1] / f[name, "adaptive"][1] for f in found]
        rows += [
            Row(
                f"g7_throughput_{id_}",
                f"tokens/s over static, {name}",
                "ratio",
                geometric_mean([rates]),
                at_least=0.99,
            ),
            Row(
                f"g7_ttft_{id_}",
                f"static's mean TTFT over its own, {name}",
                "ratio",
                geometric_mean([ttfts]),
                at_least=0.99,
            ),
        ]
        for spec in POLICIES:
            rate, ttft = (mean([f[name, spec][k] for f in found]).value for k in (0, 1))
            lines.append((f"`{spec}`, {name}", shown(rate), shown(ttft)))
    for k, id_ in enumerate(("decodes", "mixed")):
        rows.append(
            Row(
                f"g7_own_code_p99_{id_}",
                f"own code per step, p99 at {RUNNING} running, {id_}",
                "us",
                mean([one[k] for one in took]),
                at_most=TARGET_US,
            )
        )
    return Section(
        "G7",
        "a load that does not bind, and the policy's own time",
        f"Profile `{PROFILE}`, `{WORKLOAD}` at {LOAD:g} of the fluid limit for {run_s:g} s. Own"
        " code: `benchmarks.cost.scheduler` with `adaptive`, CPU time of the thread,"
        f" {len(took)} runs; mixed: in each step a request comes, is prefilled, and another ends."
        " Measure it on an idle machine: other work shows through the caches (load average"
        f" {os.getloadavg()[0]:.1f} here).",
        tuple(rows),
        (markdown_table(("policy", "output tokens/s", "mean TTFT, ms"), lines),),
    )
