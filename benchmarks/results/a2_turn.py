"""A2: short answers that turn long, and back, at three sizes of KV memory.

1,000 answers of 60 tokens (7 a second), then 80 of 4,000 (20 a second), and in half of the rows
1,000 of 60 again, right after those; prompts of 257, `paper-fig3`, an ITL of 60 ms, no
`max_tokens`. A stall is a gap between two tokens of more than 20 times the ITL. Rivals: vLLM's
default limits, past_future, and static caps: of those with at least 0.98 of the best tokens/s, the
one with the fewest stalls and the one with the shortest longest gap. Such a cap can only be chosen
by somebody who knows what will come.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, exactly
from benchmarks.report.workers import Bench
from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import replay
from simulator.replay.measure import summarise
from simulator.virtual.ground import Ground
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.requests import Request

PROFILE, ITL_MS, SEED = "paper-fig3", 60.0, 3
PROMPT, SHORT, LONG = 257, 60, 4000
SHORTS, LONGS = 1000, 80
SHORT_PER_S, LONG_PER_S = 7.0, 20.0
KV_TOKENS = (30_000, 60_000, 120_000)
CAPS = (12, 16, 20, 24, 32, 48, 64)
RIVALS = ("static", "past_future", *(f"static:max_num_seqs={cap}" for cap in CAPS))
LEAST_TOKENS = 0.98


@dataclass(frozen=True, slots=True)
class Task:
    """A policy with so much KV memory, in tokens; whether short answers come again."""

    spec: str
    kv_tokens: int
    back: bool
    small: bool = False


@dataclass(frozen=True, slots=True)
class Served:
    """Gaps above 20 ITLs, the longest gap in seconds, tokens/s."""

    stalls: int
    longest_s: float
    tokens_per_s: float


def requests_of(task: Task) -> tuple[Request, ...]:
    """In order of arrival."""
    rng = np.random.default_rng(SEED)
    shorts, longs = (n // (20 if task.small else 1) for n in (SHORTS, LONGS))
    turns = [(shorts, SHORT, SHORT_PER_S), (longs, LONG, LONG_PER_S)]
    if task.back:
        turns.append((shorts, SHORT, SHORT_PER_S))
    made, now_s = [], 0.0
    for n, output, rate_per_s in turns:
        at_s = now_s + np.cumsum(rng.exponential(1 / rate_per_s, n))
        made += [Request(float(one), PROMPT, output) for one in at_s]
        now_s = float(at_s[-1])
    return tuple(made)


def serve(task: Task) -> Served:
    """Replay it."""
    profile = load_profile(PROFILE).with_kv_tokens(task.kv_tokens)
    sla = Sla(itl_ms=ITL_MS)
    plan = parse_policy(task.spec, sla, engine_of(profile))
    summary = summarise(task.spec, replay(requests_of(task), plan, Ground(profile)), sla)
    longest_s = (summary.longest_gap_ms or 0.0) / 1000
    return Served(summary.stalls or 0, longest_s, summary.output_tokens_per_s)


def run(bench: Bench) -> Section:
    """Every size of memory, there and back."""
    rows = [(kv, back) for back in (False, True) for kv in KV_TOKENS]
    rows = rows[:1] if bench.small else rows
    specs = ("adaptive", *(RIVALS[:3] if bench.small else RIVALS))
    tasks = [Task(spec, kv, back, bench.small) for kv, back in rows for spec in specs]
    done = iter(bench.map(serve, tasks, "turns", lambda task: task.spec == "adaptive"))
    figures, lines = [], []
    for kv, back in rows:
        name = f"{kv // 1000}k{'.back' if back else ''}"
        served = {spec: next(done) for spec in specs}
        ours, rivals = served["adaptive"], {k: v for k, v in served.items() if k != "adaptive"}
        most = max(one.tokens_per_s for one in rivals.values())
        near = [one for one in rivals.values() if one.tokens_per_s >= LEAST_TOKENS * most]
        fewest, shortest = min(o.stalls for o in near), min(o.longest_s for o in near)
        figures += [
            Row(f"a2_stalls_{name}", f"stalls, {name}", "", exactly(ours.stalls), at_most=fewest),
            Row(f"a2_longest_{name}", f"longest gap, {name}", "s", exactly(ours.longest_s),
                at_most=round(shortest, 1)),
            Row(f"a2_tokens_{name}", f"tokens/s over the best rival's, {name}", "ratio",
                exactly(ours.tokens_per_s / most), at_least=LEAST_TOKENS),
        ]  # fmt: skip
        lines += [
            (name, spec, str(one.stalls), f"{one.longest_s:.1f}", f"{one.tokens_per_s:.0f}")
            for spec, one in served.items()
        ]
    head = ("KV tokens", "policy", "stalls", "longest gap s", "tokens/s")
    text = str(__doc__).split("\n\n", 1)[1].strip()
    return Section(
        "A2", "short answers that turn long", text, tuple(figures), (markdown_table(head, lines),),
        max_tokens=None,
    )  # fmt: skip
