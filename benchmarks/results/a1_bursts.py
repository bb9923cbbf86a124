"""A1: bursts of long answers beside the static limits tuned for each.

300 answers (1,000 tokens by `paper-fig3`, whose steps read no KV; 6,000 by the H100's table, whose
steps grow with it), prompts of 200, all at once or 30 a second, lognormal with a coefficient of
variation of 0.3 or all equal, steps with 2% of noise, ample KV memory. In half of the rows clients
send no `max_tokens`, in the others a power of two above the answer. Of four static settings (token
budgets, then caps around the batch whose last step takes the ITL) the one with the most tokens/s
counts, of those with at most 1.5% of their tokens late.
"""

import math
from dataclasses import dataclass
from itertools import product

from benchmarks.contests.tuning import Setting, on_line
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, exactly
from benchmarks.report.workers import Bench
from controller.config import Sla
from replicas.profiles.disturbances import Disturbances
from replicas.profiles.profile import StepProfile
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import replay
from simulator.replay.measure import late_share, summarise
from simulator.virtual.ground import Ground
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.max_tokens import with_max_tokens
from simulator.workloads.requests import Request, length_stats
from simulator.workloads.traffic import draw_requests

OUTPUTS = {"paper-fig3": 1000, "h100-llama-8b-vllm": 6000}  # by profile, tokens
INPUT = 200
WORKLOADS = ("lognormal:{},{},0.3", "fixed:{},{}")
RATES = (math.inf, 30.0)
ITLS_MS = (40.0, 60.0)
REQUESTS, NOISE, SEED = 300, 0.02, 1
KV_TOKENS = 4_000_000  # never short
MOST_LATE, LEAST_TOKENS = 0.015, 0.97
CAPS = (0.9, 1.15)  # times the batch whose last step takes the ITL
CHUNKS = (512,)  # beside the chunk that leaves a step at the ITL


@dataclass(frozen=True, slots=True)
class Burst:
    """One burst of ``REQUESTS`` on a profile: lengths, rate in requests/s, ITL in ms."""

    profile: str
    workload: str
    rate_per_s: float
    itl_ms: float
    small: bool = False

    @property
    def id(self) -> str:
        """``paper.lognormal.once.40``."""
        rate = "once" if math.isinf(self.rate_per_s) else f"{self.rate_per_s:g}"
        kind = self.workload.partition(":")[0]
        return f"{self.profile.partition('-')[0]}.{kind}.{rate}.{self.itl_ms:g}"

    @property
    def ground(self) -> StepProfile:
        return load_profile(self.profile).with_kv_tokens(KV_TOKENS)

    def requests(self, limited: bool) -> tuple[Request, ...]:
        """The requests; with ``max_tokens`` where clients send it."""
        n = REQUESTS // (30 if self.small else 1)
        workload = load_workload(self.workload.format(INPUT, OUTPUTS[self.profile]))
        drawn = draw_requests(workload, n, self.rate_per_s, None, SEED)
        return with_max_tokens(drawn, "spread" if limited else "context", SEED)


@dataclass(frozen=True, slots=True)
class Task:
    """A policy on a burst, with ``max_tokens`` or without."""

    burst: Burst
    spec: str
    limited: bool = False


@dataclass(frozen=True, slots=True)
class Served:
    """Share of the tokens that came late, and tokens/s to the end of the last answer."""

    late: float
    tokens_per_s: float

    def better_than(self, other: "Served") -> bool:
        """More tokens/s inside what may be late; outside of it, fewer late ones."""
        inside, others = self.late <= MOST_LATE, other.late <= MOST_LATE
        if inside and others:
            return self.tokens_per_s > other.tokens_per_s
        return inside or (not others and self.late < other.late)


def serve(task: Task) -> Served:
    """Replay it."""
    burst = task.burst
    profile, sla = burst.ground, Sla(itl_ms=burst.itl_ms)
    ground = Ground(profile, disturbances=Disturbances(noise_cv=NOISE), disturbance_seed=SEED)
    plan = parse_policy(task.spec, sla, engine_of(profile))
    trace = replay(burst.requests(task.limited), plan, ground)
    summary = summarise(task.spec, trace, sla)
    return Served(late_share(trace, sla) or 0.0, summary.output_tokens_per_s)


def largest_batch(burst: Burst) -> int:
    """B: the batch whose step takes the ITL when each answer has all of its tokens."""
    profile, itl_s = burst.ground, burst.itl_ms / 1000
    held = INPUT + OUTPUTS[burst.profile]
    batch = 1
    while profile.step_s(batch + 1, (batch + 1) * held, 0, 0) <= itl_s:
        batch += 1
    return batch


@dataclass(frozen=True, slots=True)
class Search:
    """Find the static limits of a burst."""

    burst: Burst


def tune(task: Search) -> tuple[Setting, Served]:
    """The chunk first, then the cap."""
    burst = task.burst
    batch, stats = largest_batch(burst), length_stats(burst.requests(False))

    def setting(cap: int, chunk: int | None) -> Setting:
        line = on_line(burst.ground, stats, burst.itl_ms / 1000, cap)
        return line if chunk is None else Setting(cap, max(chunk, cap))

    def served(one: Setting) -> Served:
        return serve(Task(burst, one.of("static")))

    chunk: int | None = None
    best = setting(batch, chunk)
    reached = served(best)

    def tried(one: Setting) -> bool:
        nonlocal best, reached
        found = served(one)
        better = found.better_than(reached)
        if better:
            best, reached = one, found
        return better

    for other in CHUNKS:
        if tried(setting(batch, other)):
            chunk = other
    for factor in CAPS[:1] if burst.small else CAPS:
        tried(setting(max(round(factor * batch), 1), chunk))
    return best, reached


def run(bench: Bench) -> Section:
    """Every burst."""
    bursts = [Burst(*one, small=bench.small) for one in product(OUTPUTS, WORKLOADS, RATES, ITLS_MS)]
    bursts = bursts[:1] if bench.small else bursts
    tasks = [Task(one, "adaptive", limited) for one in bursts for limited in (False, True)]
    ours = iter(bench.map(serve, tasks, "bursts"))
    searches = [Search(one) for one in bursts]
    tuned = bench.map(tune, searches, "static limits", _theirs)
    figures, lines = [], []
    for burst, (setting, static) in zip(bursts, tuned, strict=True):
        for limited in (False, True):
            found, name = next(ours), f"{burst.id}{'.max_tokens' if limited else ''}"
            ratio = found.tokens_per_s / static.tokens_per_s
            figures += [
                Row(f"a1_late_{name}", f"late tokens, {name}", "", exactly(found.late),
                    at_most=MOST_LATE),
                Row(f"a1_tokens_{name}", f"tokens/s over static, {name}", "ratio", exactly(ratio),
                    at_least=LEAST_TOKENS),
            ]  # fmt: skip
            lines.append(
                (name, f"{100 * found.late:.2f}", f"{found.tokens_per_s:.0f}",
                 f"{setting.cap}, {setting.chunk}", f"{100 * static.late:.2f}",
                 f"{static.tokens_per_s:.0f}")
            )  # fmt: skip
    head = ("burst", "late %", "tokens/s", "static cap, budget", "late %", "tokens/s")
    return Section(
        "A1", "bursts of long answers", _text(), tuple(figures), (markdown_table(head, lines),),
        max_tokens=None,
    )  # fmt: skip


def _theirs(task: Search) -> bool:
    """A static engine stands on vLLM's code alone."""
    return False


def _text() -> str:
    return str(__doc__).split("\n\n", 1)[1].strip()
