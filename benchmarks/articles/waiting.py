"""Waiting to fill a batch, and prompts before decodes, beside batching step by step."""

from dataclasses import dataclass

from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, exactly
from benchmarks.report.workers import Bench
from controller.config import Sla
from replicas.profile_file import load_profile
from simulator.replay.engine import replay
from simulator.replay.measure import Summary, summarise
from simulator.virtual.ground import Ground
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.traffic import draw_requests

PROFILE, SLA = "paper-fig3", Sla(itl_ms=50.0)
GROUNDS = (("fixed:257,62", 4.0), ("fixed:257,62", 7.0), ("azure-2023-conversation", 1.2))
REQUESTS = 1000
POLICIES = {
    "vLLM's default": "static",
    "fill a batch, 100 ms": "fill_batch:wait_ms=100",
    "fill a batch, 500 ms": "fill_batch:wait_ms=500",
    "waiting_served_ratio 1.2, 20 steps": "fill_batch:wait_ms=1e9,wait_steps=20",
    "prefill first": "prefill_first",
    "`adaptive`": "adaptive",
}
TEXT = (
    "Texts on batching advise to wait 100 to 500 ms so that a batch fills, or until as many wait"
    " as `waiting_served_ratio` says, and to compute prompts before decodes go on. All of them are"
    " from servers whose batch is formed before it runs. Where requests join at every step a full"
    f" batch needs no waiting. Profile `{PROFILE}`, D {SLA.itl_ms:g} ms, Poisson arrivals,"
    f" {REQUESTS} requests, one draw; late: gaps above D, of which 1% may be."
)


@dataclass(frozen=True, slots=True)
class Task:
    """A policy on a workload at a rate, requests/s."""

    workload: str
    rate_per_s: float
    spec: str
    requests: int
    seed: int


def serve(task: Task) -> Summary:
    """Replay it."""
    profile = load_profile(PROFILE)
    requests = draw_requests(
        load_workload(task.workload), task.requests, task.rate_per_s, None, task.seed
    )
    plan = parse_policy(task.spec, SLA, engine_of(profile))
    return summarise(task.spec, replay(requests, plan, Ground(profile)), SLA)


def run(bench: Bench) -> Section:
    """All policies on all grounds."""
    n, (seed, *_) = REQUESTS // (20 if bench.small else 1), bench.seeds
    tasks = [Task(w, r, spec, n, seed) for w, r in GROUNDS for spec in POLICIES.values()]
    done = dict(zip(tasks, bench.map(serve, tasks, "waiting"), strict=True))
    rows, lines = [], []
    for workload, rate_per_s in GROUNDS:
        known = {
            name: done[Task(workload, rate_per_s, spec, n, seed)] for name, spec in POLICIES.items()
        }
        ours = known["`adaptive`"]
        for name, one in known.items():
            lines.append([f"{workload} {rate_per_s:g}/s", name, *_cells(one)])
        waits = [one.j or 0.0 for name, one in known.items() if name != "`adaptive`"]
        rows.append(
            Row(
                f"waiting.{workload}.{rate_per_s:g}",
                f"J of the best of the others over `adaptive`, {workload} at {rate_per_s:g}/s",
                "ratio",
                exactly(min(waits) / (ours.j or 1.0)),
                at_least=1.0,
            )
        )
    head = ("workload", "policy", "late %", "ITL p50, p99 ms", "TTFT p50, p99 s", "J")
    table = markdown_table(head, lines)
    return Section(
        "waiting", "waiting to fill a batch, and prefill first", TEXT, tuple(rows), (table,)
    )


def _cells(one: Summary) -> list[str]:
    itl, ttft = one.itl_ms, one.ttft_ms
    return [
        f"{100 * (one.late_share_after or 0.0):.2f}",
        f"{itl.p50 or 0:.0f}, {itl.p99 or 0:.0f}",
        f"{(ttft.p50 or 0) / 1000:.2f}, {(ttft.p99 or 0) / 1000:.2f}",
        f"{one.j or 0:.3f}",
    ]
