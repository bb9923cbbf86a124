"""X: the policy beside what else an engine may do: each a ratio of adaptive to static."""

import math
from dataclasses import dataclass, replace

from benchmarks.contests.catalog import Contest
from benchmarks.contests.contest import Task, search, tune
from benchmarks.report.bootstrap import geometric_mean, mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.workers import Bench
from controller.config import Sla
from replicas.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.replay.measure import summarise
from simulator.virtual.plan import Speculation, engine_of, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.traffic import draw_requests

REQUESTS = 600
POLICIES = ("adaptive", "static")


@dataclass(frozen=True, slots=True)
class Offline:
    """All requests at t = 0, no SLA."""

    name: str
    what: str
    workload: str
    kv_tokens: int | None
    settings: str = ""
    shared_prefix: int = 0
    speculation: Speculation | None = None


CASES = (
    Offline(
        "speculation",
        "3 drafts a step, 0.7 accepted; memory tight",
        "exponential:191,382",
        60_000,
        speculation=Speculation(tokens=3, acceptance=0.7),
    ),
    Offline(
        "prefix",
        "prefix caching, 256 shared tokens of 512; memory tight",
        "fixed:512,256",
        60_000,
        settings="enable_prefix_caching=true",
        shared_prefix=256,
    ),
    Offline("no_sla", "no SLA, memory ample", "azure-2023-conversation", None),
)
MOE = Contest("moe", "synthetic-moe", "azure-2023-conversation", sla_ms=28.0)


def offline(task: tuple[Offline, int, int]) -> dict[str, float]:
    """Output tokens/s of both policies on one draw."""
    case, requests, seed = task
    profile = load_profile("paper-fig3").with_kv_tokens(case.kv_tokens)
    drawn = draw_requests(load_workload(case.workload), requests, math.inf, None, seed)
    ground = Ground(profile, shared_prefix_tokens=case.shared_prefix)
    found = {}
    for spec in POLICIES:
        plan = parse_policy(f"{spec}:{case.settings}", Sla(), engine_of(profile))
        trace = replay(drawn, replace(plan, speculation=case.speculation), ground)
        found[spec] = summarise(spec, trace, Sla()).output_tokens_per_s
    return found


def run(bench: Bench) -> Section:
    """Every case with every seed."""
    cases = CASES[:2] if bench.small else CASES
    requests = 60 if bench.small else REQUESTS
    tasks = [(case, requests, seed) for seed in bench.seeds for case in cases]
    done = iter(bench.map(offline, tasks, "X offline"))
    by_seed = [[next(done) for _ in cases] for _ in bench.seeds]
    (tuned,) = bench.map(tune, [Task(MOE, small=bench.small)], "X experts, tuning")
    moes = [Task(MOE, seed, bench.small, tuned) for seed in bench.seeds]
    moe = bench.map(search, moes, "X experts")
    rows, lines = [], []
    for k, case in enumerate(cases):
        found = [one[k] for one in by_seed]
        ratio = geometric_mean([[f["adaptive"] / f["static"] for f in found]])
        rows.append(Row(f"x_{case.name}", case.what, "ratio", ratio))
        rates = (shown(mean([f[spec] for f in found]).value) for spec in POLICIES)
        lines.append((case.what, "output tokens/s", *rates))
    for name, id_ in (("default", "default"), ("best_static", "best")):
        what = f"mixture of experts, SLA {MOE.sla_ms:g} ms, over {name.replace('_', ' ')}"
        ratio = geometric_mean([[f.over(name) for f in moe]])
        rows.append(Row(f"x_moe_{id_}", what, "ratio", ratio))
        rates = (shown(mean([f.per_s[spec] for f in moe]).value) for spec in ("adaptive", name))
        lines.append((what, "requests/s in the SLA", *rates))
    return Section(
        "X",
        "other engines",
        f"Adaptive over static on the same draw; offline cases: `paper-fig3`, {requests} requests"
        " at t = 0. Mixture of experts: `synthetic-moe`, whose steps grow fast to 64 tokens, until"
        " all experts are read, and slowly from there; capacity and best static as in G3.",
        tuple(rows),
        (markdown_table(("case", "unit", "adaptive", "static"), lines),),
    )
