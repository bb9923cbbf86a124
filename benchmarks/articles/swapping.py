"""What swapping KV out could gain over computing it again after a preemption, at most.

A preempted request loses its blocks and computes them again. Were they read from host memory
instead, its tokens would cost the engine nothing and the request the time on the link. So the share
of the engine's time that goes into computing again bounds what any swapping gains.
"""

from dataclasses import dataclass

from benchmarks.contests.offline import CASES, PROFILE, Case, draw
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, exactly
from benchmarks.report.workers import Bench
from controller.config import Sla
from replicas.profile import LinearCost
from replicas.profile_file import load_profile
from simulator.replay.engine import replay
from simulator.virtual.ground import Ground
from simulator.virtual.plan import engine_of, parse_policy

KV_BYTES = 327_680.0  # of a token: 80 layers, 8 heads of KV, 128 wide, 2 bytes (70B with GQA)
LINK_BYTES_PER_S = 25e9  # PCIe 4.0 x16, as it is reached
SPECS = {"vLLM's default": "static", "`adaptive`": "adaptive"}
TEXT = (
    f"Offline, all requests at once, KV memory short; profile `{PROFILE}`. Computed again: prompt"
    " and generated tokens, by the profile's time of a prompt token; the share of all step times"
    " that they took is what swapping could gain at most. Per token the engine computes for"
    " {token_us:.0f} us, and a link of 25 GB/s (PCIe 4.0 x16) carries the 327,680 bytes of a 70B"
    " model with GQA in {wire_us:.0f} us each way: where it is worth anything, reading is cheaper."
)


@dataclass(frozen=True, slots=True)
class Task:
    """A policy on one draw of a case."""

    case: Case
    spec: str
    requests: int
    seed: int


@dataclass(frozen=True, slots=True)
class Again:
    """Preemptions per request; tokens computed again, of all prompt tokens; their share of time."""

    preemptions: float
    tokens: float
    time: float


def cost_of() -> LinearCost:
    """The profile's, which is linear."""
    cost = load_profile(PROFILE).cost
    assert isinstance(cost, LinearCost)
    return cost


def serve(task: Task) -> Again:
    """Replay it."""
    profile = load_profile(PROFILE).with_kv_tokens(task.case.kv_tokens)
    requests = draw(task.case, task.requests, task.seed)
    trace = replay(requests, parse_policy(task.spec, Sla(), engine_of(profile)), Ground(profile))
    prompts = sum(o.request.input_tokens for o in trace.outcomes if not o.refused)
    again = float(trace.column("prefill_tokens").sum()) - prompts
    lost = sum(o.preemptions for o in trace.outcomes) / len(trace.outcomes)
    busy_s = float(trace.column("duration_s").sum())
    return Again(lost, again / prompts, again * cost_of().per_prefill_s / busy_s)


def run(bench: Bench) -> Section:
    """vLLM's default and ``adaptive`` on every case of G1."""
    cases = CASES[:2] if bench.small else CASES
    (seed, *_) = bench.seeds
    tasks = [
        Task(case, spec, min(case.requests, 60) if bench.small else case.requests, seed)
        for case in cases
        for spec in SPECS.values()
    ]
    done = dict(zip(tasks, bench.map(serve, tasks, "swapping"), strict=True))
    lines, most = [], dict.fromkeys(SPECS, 0.0)
    for case in cases:
        cells = [case.name]
        for name, spec in SPECS.items():
            one = next(v for task, v in done.items() if task.case == case and task.spec == spec)
            cells += [f"{one.preemptions:.2f}", f"{100 * one.tokens:.1f}", f"{100 * one.time:.2f}"]
            most[name] = max(most[name], one.time)
        lines.append(cells)
    head = ["case"]
    for name in SPECS:
        head += [f"{name}: preemptions a request", "computed again, % of prompts", "of time, %"]
    rows = tuple(
        Row(
            f"swapping.{spec}",
            f"time for computing again, the most of all cases, {name}",
            "share",
            exactly(most[name]),
        )
        for name, spec in SPECS.items()
    )
    text = TEXT.format(
        token_us=1e6 * cost_of().per_prefill_s, wire_us=1e6 * KV_BYTES / LINK_BYTES_PER_S
    )
    return Section("swapping", "swap or recompute", text, rows, (markdown_table(head, lines),))
