"""Pass 2: what control is worth on this card.

    python -m benchmarks.gpu.control --profile DIR/card.json --out DIR

vLLM's default, the best static setting (by a sweep in the replay on the card's own profile), the
paper's algorithms and ``adaptive``, in turn on one engine: capacity and latencies under an SLA,
throughput and preemptions where KV memory is tight; then what the patched scheduler costs beside
vLLM's own. What the time budget has no room for is left out, and named.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contests.race import race
from benchmarks.gpu.card import describe
from benchmarks.gpu.engine import PLAIN, Engine, Run, Size
from benchmarks.gpu.model import make_model
from benchmarks.gpu.step_time import SLA_STEPS, TINY
from benchmarks.replay.capacity import make_course
from benchmarks.replay.engine import Ground
from benchmarks.replay.verdict import Target
from benchmarks.report.document import ROOT
from benchmarks.workloads.catalog import load_workload
from benchmarks.workloads.requests import Request
from benchmarks.workloads.traffic import Traffic, draw_requests, draw_traffic
from controller.config import BatchingConfig, Sla, parse_batching
from replicas.profile import StepProfile
from replicas.profile_file import load_profile

WORKLOADS = ("exponential:257,62", "exponential:257,447", "azure-2023-conversation")
RATES = (0.8, 0.95)  # of the replay's capacity of `adaptive`: the fixed rates
TIGHT_REQUESTS = 160  # of the mean live length: what the tight KV memory holds


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of the comparison: a policy with vLLM's two settings."""

    name: str
    batching: dict[str, Any]
    cap: int | None = None
    chunk: int | None = None

    def config(self, sla: Sla) -> BatchingConfig:
        return parse_batching(
            {**self.batching, "sla": {"itl_ms": sla.itl_ms, "percentile": sla.percentile}}
        )


def arms(best: tuple[int, int]) -> tuple[Arm, ...]:
    """The four of them; ``best`` is the static cap and chunk, which the paper's has too."""
    paper = {"policy": "paper", "paper": {"l0": "buffer"}}
    return (
        Arm("default", {"policy": "static"}),
        Arm("best_static", {"policy": "static"}, *best),
        Arm("paper", paper, *best),
        Arm("adaptive", {"policy": "adaptive"}),
    )


class Clock:
    """The time budget."""

    def __init__(self, budget_s: float) -> None:
        self._until_s = time.monotonic() + budget_s
        self.left_out: list[str] = []

    def room(self, seconds: float, what: str) -> bool:
        """Whether so much is left; else ``what`` is noted as left out."""
        if time.monotonic() + seconds <= self._until_s:
            return True
        self.left_out.append(what)
        return False


def best_static(workload: str, profile: StepProfile, sla: Sla, run_s: float) -> tuple[int, int]:
    """Cap and chunk with the highest capacity in the replay on this card's profile."""
    target, ground = Target(sla), Ground(profile)
    course = make_course(
        load_workload(workload), ground, target, least=200, least_run_s=run_s, seed=100
    )
    chunks = (128, 256, 384, 512, 768)
    specs = [
        f"static:max_num_seqs={min(c, profile.max_num_seqs)},max_num_batched_tokens={c}"
        for c in chunks
    ]
    _, spec = race(specs, 0.8, course, ground, target)
    chunk = chunks[specs.index(spec)]
    return min(chunk, profile.max_num_seqs), chunk


def replay_capacity(workload: str, profile: StepProfile, sla: Sla, run_s: float) -> float:
    """Of ``adaptive``, requests/s: where the search on the card begins."""
    target, ground = Target(sla), Ground(profile)
    course = make_course(
        load_workload(workload), ground, target, least=200, least_run_s=run_s, seed=100
    )
    return race(("adaptive",), 0.9, course, ground, target)[0]


def capacity(
    holds: Callable[[float], bool], begin_per_s: float, clock: Clock, run_s: float, what: str
) -> float | None:
    """The highest rate that holds, to 10%, in steps from ``begin_per_s``; None: no time for it."""
    low, high, rate = 0.0, math.inf, begin_per_s
    while high > low * 1.1:
        if rate < begin_per_s / 40:
            return 0.0
        if not clock.room(run_s * 1.5, what):
            return low or None
        if holds(rate):
            low = rate
            rate = math.sqrt(low * high) if math.isfinite(high) else low * 1.25
        else:
            high = rate
            rate = math.sqrt(low * high) if low else high / 1.6
    return low


class Contest:
    """Runs arms on one engine, and keeps the rows."""

    def __init__(self, engine: Engine, clock: Clock, seconds: float) -> None:
        self._engine, self._clock, self._seconds = engine, clock, seconds
        self.rows: list[dict[str, Any]] = []
        self.own_us: list[float] = []

    def row(self, id_: str, value: float, unit: str = "ratio", target: Any = None) -> None:
        self.rows.append({"id": id_, "value": round(value, 4), "unit": unit, "target": target})
        print(f"{id_:55} {value:12.3f} {unit}", flush=True)

    def serve(self, arm: Arm, sla: Sla, requests: Sequence[Request], what: str) -> Run:
        """One run of one arm."""
        self._engine.follow(arm.config(sla), cap=arm.cap, chunk=arm.chunk)
        run = self._engine.serve(requests, f"{what}, {arm.name}", limit_s=3 * self._seconds)
        if arm.name == "adaptive":
            self.own_us += run.own_us
        return run

    def _at(self, traffic: Traffic, rate_per_s: float) -> list[Request]:
        n = max(int(rate_per_s * self._seconds), 20)
        longest = self._engine.size.max_model_len
        return [r for r in traffic.at(rate_per_s)[:n] if r.input_tokens + r.output_tokens < longest]

    def latency(self, workload: str, profile: StepProfile, sla: Sla, run_s: float) -> None:
        """Latencies at fixed rates, then capacities."""
        label = workload.split(":")[-1].replace(",", "-")
        begin = replay_capacity(workload, profile, sla, run_s)
        if not begin:  # a profile that was measured on a busy machine
            print(f"{label}: left out, as no rate keeps {sla.itl_ms} ms in the replay", flush=True)
            return
        sides = arms(best_static(workload, profile, sla, run_s))
        print(f"{label}: SLA {sla.itl_ms} ms, replay {begin:.1f}/s, best static {sides[1].chunk}")
        n = int(begin * 2 * self._seconds) + 100
        traffic = draw_traffic(load_workload(workload), n, None, 7)
        for rate in RATES:
            for arm in sides:
                if self._clock.room(self._seconds * 2, f"{label} at {rate:g}, {arm.name}"):
                    run = self.serve(arm, sla, self._at(traffic, rate * begin), label)
                    late, id_ = run.seen.later_half(), f"gpu_{label}_{rate:g}_{arm.name}"
                    self.row(f"{id_}_p99_itl", late.p99_itl_ms, "ms")
                    self.row(f"{id_}_median_ttft", late.median_ttft_s * 1000, "ms")
                    self.row(
                        f"{id_}_p99_ttft", float(np.nanpercentile(late.ttft_s, 99)) * 1000, "ms"
                    )
        found = {}
        for arm in reversed(sides):  # adaptive first: the others are compared with it

            def holds(rate: float, arm: Arm = arm) -> bool:
                return self.serve(arm, sla, self._at(traffic, rate), label).seen.holds(sla)

            what = f"{label} capacity, {arm.name}"
            share = {"default": 0.2, "best_static": 0.8, "paper": 0.7}.get(arm.name, 0.95)
            per_s = capacity(holds, share * begin, self._clock, self._seconds, what)
            if per_s is not None:
                found[arm.name] = per_s
                self.row(f"gpu_{label}_capacity_{arm.name}", per_s, "requests/s")
        for name, target in (("default", 5.0), ("best_static", 1.05), ("paper", 1.1)):
            if name in found and "adaptive" in found:
                ratio = found["adaptive"] / max(found[name], begin / 40)
                self.row(f"gpu_{label}_capacity_over_{name}", ratio, target=target)

    def memory(self, workload: str, requests: int) -> None:
        """Throughput and preemptions where KV memory is tight, no SLA."""
        label = workload.split(":")[-1].replace(",", "-")
        drawn = draw_requests(load_workload(workload), requests, math.inf, None, 7)
        longest = self._engine.size.max_model_len
        drawn = tuple(r for r in drawn if r.input_tokens + r.output_tokens < longest)
        live = float(np.mean([r.input_tokens + r.output_tokens / 2 for r in drawn]))
        self._engine.keep_kv_free(None)
        held = min(TIGHT_REQUESTS, self._engine.size.max_num_seqs // 2)
        self._engine.keep_kv_free(int(held * live))
        found = {}
        for arm in arms((128, self._engine.size.max_num_batched_tokens)):
            if self._clock.room(3 * self._seconds, f"{label} memory, {arm.name}"):
                run = self.serve(arm, Sla(), drawn, f"{label} memory")
                found[arm.name] = run.tokens_per_s
                id_ = f"gpu_{label}_memory_{arm.name}"
                self.row(f"{id_}_tokens_per_s", run.tokens_per_s, "tokens/s")
                self.row(f"{id_}_preemptions", run.preemptions / len(drawn), "per request")
        self._engine.keep_kv_free(None)
        for name, target in (("default", 1.08), ("best_static", 1.03), ("paper", 1.0)):
            if name in found and "adaptive" in found:
                ratio = found["adaptive"] / found[name]
                self.row(f"gpu_{label}_memory_over_{name}", ratio, target=target)

    def cost(self, plain: Engine, requests: int, rounds: int) -> None:
        """Throughput of the patched scheduler over vLLM's own, nothing binding; and own code."""
        drawn = [Request(0.0, 128, 128, 128)] * requests
        ratios = []
        self._engine.follow(parse_batching({"policy": "adaptive"}))
        for index in range(rounds):
            took = {}
            for engine in (self._engine, plain) if index % 2 else (plain, self._engine):
                took[engine is plain] = engine.serve(drawn, "cost").tokens_per_s
            ratios.append(took[False] / took[True])
        self.row("gpu_over_plain_vllm", float(np.median(ratios)), target=0.995)
        self.row("gpu_over_plain_vllm_low", min(ratios))
        self.row("gpu_over_plain_vllm_high", max(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", required=True, help="what pass 1 wrote: FILE or FILE:NAME")
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "gpu")
    parser.add_argument("--parts", nargs="+", default=["latency", "memory", "cost"])
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--seconds", type=float, default=10.0, help="of a run's arrivals")
    parser.add_argument("--budget-s", type=float, default=480.0, help="after the engine's start")
    parser.add_argument("--try", dest="tiny", action="store_true", help="the tiny model, anywhere")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    model = make_model(ROOT / ".cache", tiny=args.tiny)
    size = TINY if args.tiny else Size(1024, 8192, 20_480, 0.45 if "cost" in args.parts else 0.9)
    profile = load_profile(args.profile)
    sla = Sla(itl_ms=round(SLA_STEPS * profile.step_s(1, 500, 0, 0) * 1000, 1))
    engine, clock = Engine(model, size), Clock(args.budget_s)
    engine.serve([Request(0.0, 64, 16, 16)] * 8, "the first steps are cold")
    contest = Contest(engine, clock, args.seconds)
    if "latency" in args.parts:
        for workload in args.workloads:
            contest.latency(workload, profile, sla, 10.0 if args.tiny else 40.0)
    if "memory" in args.parts:
        for workload in args.workloads:
            contest.memory(workload, 60 if args.tiny else 1500)
    if "cost" in args.parts and clock.room(60, "cost"):
        contest.cost(Engine(model, size, PLAIN), 64 if args.tiny else 2000, 6)
    if contest.own_us:
        contest.row("gpu_own_code_p99", float(np.percentile(contest.own_us, 99)), "us", 300)
    print(f"{describe()['described']}; left out: {', '.join(clock.left_out) or 'nothing'}")
    text = json.dumps({"bench": "gpu-control", "rows": contest.rows})
    (args.out / "control.json").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
