"""G1 and G2: offline tokens/s and preemptions where KV memory is what is short.

No SLA, all requests at t = 0, KV memory so small that vLLM's default loses requests to it. Every
policy serves the same draw of a seed, one policy after the other.
"""

import math
from dataclasses import dataclass

from benchmarks.bootstrap import geometric_mean, mean, ratio_of_means
from benchmarks.cases import engine_of
from benchmarks.document import markdown_table
from benchmarks.engine import Ground, replay
from benchmarks.measure import Summary, summarise
from benchmarks.policies import parse_policy
from benchmarks.requests import Request
from benchmarks.results_bench import PILOT_SEED, Bench
from benchmarks.results_report import Row, Section, shown
from benchmarks.traffic import draw_requests
from benchmarks.workloads import load_workload
from controller.config import Sla
from replicas.profile_file import load_profile

PROFILE = "paper-fig3"
REQUESTS = 1500
CAPS = (64, 96, 128, 160, 192)  # vLLM's default, 256, runs with every seed
PILOT_REQUESTS = 500  # enough to tell the caps apart; the best one runs with every seed
POLICIES = {
    "adaptive": "adaptive",
    "clairvoyant": "clairvoyant",
    "default": "static",
    "watermark": "static:watermark=0.05",
    "algorithm_1": "paper:l0=buffer",
    "live": "paper:memory=live",
}
Found = dict[str, tuple[float, float]]  # by spec: output tokens/s, preemptions per request


@dataclass(frozen=True, slots=True)
class Case:
    """Workloads, an equal share of the requests each, one after the other."""

    name: str
    kv_tokens: int
    workloads: tuple[str, ...]


CASES = (
    Case("fixed-128-128", 30_000, ("fixed:128,128",)),
    Case("fixed-191-382", 60_000, ("fixed:191,382",)),
    Case("exponential-191-382", 60_000, ("exponential:191,382",)),
    Case("azure-conversation", 100_000, ("azure-2023-conversation",)),
    Case("heavy-tail", 50_000, ("lognormal:256,256,1.8",)),
    Case(
        "shifting",
        60_000,
        ("fixed:128,64", "exponential:191,382", "fixed:256,512", "azure-2023-conversation"),
    ),
)


@dataclass(frozen=True, slots=True)
class Task:
    """One draw of requests for some policies."""

    case: Case
    seed: int
    specs: tuple[str, ...]
    requests: int


def draw(case: Case, requests: int, seed: int) -> tuple[Request, ...]:
    """The requests of a case, all at t = 0."""
    each = requests // len(case.workloads)
    return tuple(
        request
        for index, name in enumerate(case.workloads)
        for request in draw_requests(load_workload(name), each, math.inf, None, seed + 1000 * index)
    )


def offline(task: Task) -> Found:
    """Tokens/s and preemptions per request of each policy."""
    profile = load_profile(PROFILE).with_kv_tokens(task.case.kv_tokens)
    requests = draw(task.case, task.requests, task.seed)
    found = {}
    for spec in task.specs:
        trace = replay(requests, parse_policy(spec, Sla(), engine_of(profile)), Ground(profile))
        summary: Summary = summarise(spec, trace, Sla())
        found[spec] = summary.output_tokens_per_s, summary.preemptions / summary.requests
    return found


def static(cap: int) -> str:
    """vLLM with this cap and nothing else changed."""
    return f"static:max_num_seqs={cap}"


def run(bench: Bench) -> Section:
    """Both parts: they read the same replays."""
    requests = 60 if bench.small else REQUESTS
    cases = CASES[:1] if bench.small else CASES
    sweep = tuple(map(static, CAPS))
    pilots = bench.map(
        offline,
        [Task(case, PILOT_SEED, sweep, min(requests, PILOT_REQUESTS)) for case in cases],
        "G1 sweep",
    )
    best = [max(sweep, key=lambda spec: pilot[spec][0]) for pilot in pilots]
    tasks = [
        Task(case, seed, (*POLICIES.values(), kept), requests)
        for seed in bench.seeds
        for case, kept in zip(cases, best, strict=True)
    ]
    done = iter(bench.map(offline, tasks, "G1 replays"))
    by_seed = [[next(done) for _ in cases] for _ in bench.seeds]
    by_case = [[found[k] for found in by_seed] for k in range(len(cases))]
    for found, kept in ((f, k) for fs, k in zip(by_case, best, strict=True) for f in fs):
        found["best static"] = max(found[s] for s in (kept, "static"))
    rows = (*_throughput_rows(cases, by_case), *_preemption_rows(cases, by_case))
    return Section(
        "G1",
        "offline throughput and preemptions where KV memory is tight (G1, G2)",
        f"Profile `{PROFILE}`, no SLA, {requests} requests at t = 0, seeds"
        f" {', '.join(map(str, bench.seeds))}. Figures are output tokens/s of `adaptive` over those"
        " of a baseline on the same requests; over several seeds (and workloads) the geometric"
        f" mean. Best static: of max_num_seqs {', '.join(map(str, CAPS))} the best on seed"
        f" {PILOT_SEED} with {PILOT_REQUESTS} requests, or 256, the default, whichever is better on"
        " the seed. The"
        " clairvoyant knows every output length.",
        rows,
        (_table(cases, by_case, best),),
    )


def _ratios(found: list[Found], baseline: str) -> list[float]:
    return [f["adaptive"][0] / f[baseline][0] for f in found]


def _throughput_rows(cases: tuple[Case, ...], by_case: list[list[Found]]) -> list[Row]:
    rows = []
    for name, baseline, target in (
        ("best_static", "best static", 1.03),
        ("default", POLICIES["default"], 1.08),
    ):
        ratios = [_ratios(found, baseline) for found in by_case]
        what = f"over {name.replace('_', ' ')}, all workloads"
        rows.append(Row(f"g1_{name}", what, "ratio", geometric_mean(ratios), at_least=target))
    for name, target in (
        ("clairvoyant", 0.98),
        ("watermark", 1.0),
        ("algorithm_1", 1.0),
        ("live", 1.0),
    ):
        for case, found in zip(cases, by_case, strict=True):
            ratio = geometric_mean([_ratios(found, POLICIES[name])])
            what = f"over {name.replace('_', ' ')}, {case.name}"
            rows.append(Row(f"g1_{name}_{case.name}", what, "ratio", ratio, at_least=target))
    return rows


def _preemption_rows(cases: tuple[Case, ...], by_case: list[list[Found]]) -> list[Row]:
    rows = []
    for case, found in zip(cases, by_case, strict=True):
        own = [f["adaptive"][1] for f in found]
        default = [f[POLICIES["default"]][1] for f in found]
        what = f"preemptions per request, {case.name}"
        rows.append(Row(f"g2_preemptions_{case.name}", what, "", mean(own), at_most=0.05))
        share = ratio_of_means(own, default)
        what = f"preemptions over the default's, {case.name}"
        rows.append(Row(f"g2_to_default_{case.name}", what, "ratio", share, at_most=0.2))
    return rows


def _table(cases: tuple[Case, ...], by_case: list[list[Found]], best: list[str]) -> str:
    lines = []
    for case, found, kept in zip(cases, by_case, best, strict=True):
        for spec in (*POLICIES.values(), kept):
            rate, preemptions = (mean([f[spec][k] for f in found]).value for k in (0, 1))
            lines.append((case.name, f"`{spec}`", shown(rate), shown(preemptions)))
    return markdown_table(
        ("workload", "policy", "output tokens/s", "preemptions per request"), lines
    )
