"""Corners: loads and agreements at the edge of what the policy is for, one run of each and seed.

Nothing may be lost there against vLLM's default: it is what stands without this project.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.report.bootstrap import geometric_mean, mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.seeds import PILOT_SEED
from benchmarks.report.workers import Bench
from benchmarks.results.corner_engines import GRAMMAR_S, STATE_BLOCK, hybrid, structured
from controller.config import Sla
from replicas.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.replay.fluid import fluid_limit_per_s
from simulator.replay.measure import late_share, summarise
from simulator.virtual.plan import Plan, engine_of, parse_policy
from simulator.virtual.trace import Trace
from simulator.workloads.catalog import load_workload
from simulator.workloads.lengths import Quantiles
from simulator.workloads.requests import Request, length_stats
from simulator.workloads.traffic import Drawn, Phase, Workload, draw_phases, draw_traffic

PROFILE = "paper-fig3"
RUN_S = 200.0
POLICIES = ("adaptive", "static")
AT_LEAST = 0.98
MOST_SEEDS = 3  # a look at each corner, not a measurement to the percent
LONG = Workload(
    "prompts of 16k to 32k",
    Drawn(Quantiles((0.0, 100.0), (16_000, 32_000)), Quantiles((0.0, 100.0), (50, 350))),
)


Engine = Callable[[Sequence[Request], Plan, Ground], Trace]


@dataclass(frozen=True, slots=True)
class Case:
    """One load under one agreement.

    Args:
        load: of the fluid limit inside the agreement.
        gap_cv: of the gaps between arrivals; None: the workload's own.
        engine: what replays it.
    """

    name: str
    workload: Workload
    sla: Sla
    load: float
    gap_cv: float | None = None
    run_s: float = RUN_S
    engine: Engine = replay


AZURE = load_workload("azure-2023-conversation")
CASES = (
    Case("light-load", AZURE, Sla(itl_ms=50), 0.05),
    Case("tight-sla", AZURE, Sla(itl_ms=35), 0.5),
    Case("loose-sla", AZURE, Sla(itl_ms=500, ttft_ms=60_000), 0.8),
    Case("bursts", AZURE, Sla(itl_ms=50), 0.5, gap_cv=5.0),
    Case("bursts-no-sla", AZURE, Sla(), 0.5, gap_cv=5.0),
    Case("structured", AZURE, Sla(itl_ms=50), 0.5, engine=structured),
    Case("structured-no-sla", AZURE, Sla(), 0.5, engine=structured),
    Case("hybrid", AZURE, Sla(itl_ms=50), 0.5, engine=hybrid),
    Case("hybrid-no-sla", AZURE, Sla(), 0.5, engine=hybrid),
    Case("long-prompts", LONG, Sla(itl_ms=50), 0.5, run_s=3 * RUN_S),
    Case("long-prompts-no-sla", LONG, Sla(), 0.5, run_s=3 * RUN_S),
)


@dataclass(frozen=True, slots=True)
class Served:
    """What one policy made of it; ``late``: share of the times between tokens above the SLA."""

    tokens_per_s: float
    ttft_ms: float
    late: float


def serve(task: tuple[Case, int, float]) -> dict[str, Served]:
    """Both policies on one draw; the run is so many times as long."""
    case, seed, times = task
    profile = load_profile(PROFILE)
    stats = length_stats(draw_traffic(case.workload, 5000, None, PILOT_SEED).requests)
    limit = fluid_limit_per_s(profile, stats, case.sla.itl_s, profile.max_num_seqs)
    phase = Phase(case.workload, case.load * limit, case.run_s * times)
    requests = draw_phases([phase], case.gap_cv, seed)
    found = {}
    for spec in POLICIES:
        trace = case.engine(
            requests, parse_policy(spec, case.sla, engine_of(profile)), Ground(profile)
        )
        summary = summarise(spec, trace, case.sla)
        found[spec] = Served(
            summary.output_tokens_per_s,
            summary.ttft_ms.mean or 0.0,
            late_share(trace, case.sla) or 0.0,
        )
    return found


def run(bench: Bench) -> Section:
    """Every case with the first seeds."""
    times, seeds = 0.1 if bench.small else 1.0, bench.seeds[:MOST_SEEDS]
    tasks = [(case, seed, times) for seed in seeds for case in CASES]
    done = iter(bench.map(serve, tasks, "corners"))
    by_seed = [[next(done) for _ in CASES] for _ in seeds]
    rows, lines = [], []
    for k, case in enumerate(CASES):
        found = [one[k] for one in by_seed]
        rates = [f["adaptive"].tokens_per_s / f["static"].tokens_per_s for f in found]
        ttfts = [f["static"].ttft_ms / f["adaptive"].ttft_ms for f in found]
        allowed = 1 - case.sla.percentile / 100
        at_risk = max(f["static"].late for f in found) > allowed
        risk = "; the default breaks the SLA" if at_risk else ""
        rows += [
            Row(
                f"corner_throughput_{case.name}",
                f"tokens/s over the default's, {case.name}",
                "ratio",
                geometric_mean([rates]),
                at_least=AT_LEAST,
            ),
            Row(
                f"corner_ttft_{case.name}",
                f"the default's mean TTFT over its own, {case.name}{risk}",
                "ratio",
                geometric_mean([ttfts]),
                at_least=None if at_risk else AT_LEAST,
            ),
        ]
        for spec in POLICIES:
            served = [f[spec] for f in found]
            columns = (
                [s.tokens_per_s for s in served],
                [s.ttft_ms for s in served],
                [100 * s.late for s in served],
            )
            lines.append((case.name, f"`{spec}`", *(shown(mean(c).value) for c in columns)))
    return Section(
        "corners",
        "light and bursty loads, tight and loose SLAs, long prompts, grammars, hybrid models",
        f"Profile `{PROFILE}`, vLLM's default engine for both, {RUN_S:g} s (long prompts:"
        f" {3 * RUN_S:g} s), seeds {', '.join(map(str, seeds))}. Light load: 0.05 of"
        " the fluid limit at 50 ms, tight: 0.5 of it at 35 ms, loose: 0.8 of it at"
        " 500 ms, bursts: gaps with a CV of 5 at 0.5 of it, all"
        f" `{AZURE.name}`; structured: every request waits {1000 * GRAMMAR_S:g} ms for its grammar;"
        f" hybrid: layers with states, prompts end at blocks of {STATE_BLOCK} tokens, both at 0.5;"
        " long prompts: 16,000 to 32,000 tokens. TTFT has a target where the"
        " default itself holds the SLA, or there is none: elsewhere holding it costs TTFT, and that"
        " is what was asked for.",
        tuple(rows),
        (
            markdown_table(
                ("case", "policy", "output tokens/s", "mean TTFT, ms", "late tokens, %"), lines
            ),
        ),
    )
