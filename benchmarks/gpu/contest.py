"""Policies in turn on one engine of a card; every figure is written at once."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.budget import Budget
from benchmarks.gpu.engine import Engine
from benchmarks.gpu.tuning import Case, Limits, Tuner, label_of
from benchmarks.report.rows import Printed
from controller.config import Sla, parse_batching
from replicas.engine.governor import Governor
from replicas.profiles.profile import StepProfile
from simulator.replay.fluid import fluid_limit_per_s
from simulator.replay.measure import Summary, late_share, summarise
from simulator.virtual.trace import Gaps, Trace
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request, length_stats
from simulator.workloads.traffic import draw_traffic

ROUNDS = 4  # of ours versus vLLM's own scheduler
LOADS = (0.85, 0.5)  # of the fluid limit


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of runs.

    Args:
        seconds, skip_s: of arrivals; of these, the first ones, which fill the engine and do not
            count.
        overhead_requests: of a run of ours versus vLLM's own scheduler.
    """

    seconds: float = 12.0
    skip_s: float = 3.0
    overhead_requests: int = 480


class Contest(Printed):
    """Runs on one engine.

    Args:
        profile, spec: of the card; other processes load it by the spec.
    """

    def __init__(
        self, engine: Engine, profile: StepProfile, spec: str, tuner: Tuner, out: Path, sizes: Sizes
    ) -> None:
        super().__init__()
        self._engine, self._profile, self._spec = engine, profile, spec
        self._tuner, self._out, self._sizes = tuner, out, sizes
        self._policies: dict[tuple[str, float, Limits | None], Governor] = {}
        self._warm: set[float] = set()

    def row(self, id_: str, value: float, unit: str = "ratio", target: float | None = None) -> None:
        """Add and print a figure, and write all of them."""
        super().row(id_, value, unit, target)
        (self._out / "rows.json").write_text(json.dumps(self.rows))

    def case_of(self, workload: str, itl_ms: float, load: float) -> Case:
        """A workload at this share of the fluid limit."""
        stats = length_stats(draw_traffic(load_workload(workload), 5000, None, 0).requests)
        limit = fluid_limit_per_s(self._profile, stats, itl_ms / 1000)
        return Case(self._spec, workload, load * limit, itl_ms, 3 * self._sizes.seconds)

    def tune(self, case: Case) -> None:
        """Start the search for its best static limits."""
        most, most_tokens = self._engine.size.max_num_seqs, self._engine.size.max_num_batched_tokens
        budgets = (48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024, 1536)
        fit = [b for b in budgets if b <= most_tokens]
        self._tuner.tune(case, [(min(most, b), b) for b in sorted(fit, key=lambda b: abs(b - 256))])

    def overhead(self, budget: Budget) -> None:
        """Throughput over vLLM's own scheduler without binding limits; scheduler overhead."""
        drawn = [Request(0.0, 128, 128, 128)] * self._sizes.overhead_requests
        ours = self._engine.governor(parse_batching({"policy": "adaptive"}))
        ratios: list[float] = []
        overhead_us: list[float] = []
        for index in range(ROUNDS):
            if not budget.allows(10.0, f"versus vLLM's own, round {index}"):
                break
            per_s = {}
            for governor in (ours, None) if index % 2 else (None, ours):
                trace, each_us = self._engine.serve(drawn, governor)
                name = "ours" if governor else "plain"
                per_s[name] = summarise(name, trace, Sla()).output_tokens_per_s
                overhead_us += each_us
            ratios.append(per_s["ours"] / per_s["plain"])
        if ratios:
            self.row("gpu_over_plain_vllm", float(np.median(ratios)), target=0.995)
            self.row("gpu_over_plain_vllm_low", min(ratios))
            self.row("gpu_over_plain_vllm_high", max(ratios))
            self.row("gpu_own_code_p50", float(np.percentile(overhead_us, 50)), "us", 150)
            self.row("gpu_own_code_p99", float(np.percentile(overhead_us, 99)), "us", 400)

    def serve(self, case: Case, load: float, rounds: int, budget: Budget) -> None:
        """``adaptive`` and the two best static limits in turn at one rate; others once.

        Before the first case of an SLA ``adaptive`` serves once, uncounted, to learn this card: a
        server runs for hours.
        """
        label = f"{label_of(case.workload)}_{case.itl_ms:g}ms_{load:g}"
        found: dict[str, list[Summary]] = {}
        if case.itl_ms not in self._warm:
            self._one(case, label, "adaptive", None, "warm", {}, budget)
            self._warm.add(case.itl_ms)
        tuned = self._tuner.best(case, 2, min(60.0, budget.left_s))
        turn: list[tuple[str, Limits | None]] = [("adaptive", None)]
        turn += [(f"static-{one[1]}", one) for one in tuned]
        for index in range(rounds):
            for name, limits in turn[:: -1 if index % 2 else 1]:
                self._one(case, label, name, limits, str(index), found, budget)
        self._one(case, label, "default", None, "0", found, budget)
        self._compare(label, found)

    def _one(
        self,
        case: Case,
        label: str,
        name: str,
        limits: Limits | None,
        index: str,
        found: dict[str, list[Summary]],
        budget: Budget,
    ) -> None:
        if not budget.allows(self._sizes.seconds * 1.3, f"{label} {name} {index}"):
            return
        seed = 7 + int(index) if index.isdigit() else 6
        governor = self._policy(case, name, limits)
        trace, _ = self._engine.serve(self._arrivals(case, seed), governor, 2 * self._sizes.seconds)
        key = f"{label}_{name}_{index}"
        trace, sla = _settled(trace, self._sizes.skip_s), Sla(itl_ms=case.itl_ms)
        figures, late = summarise(name, trace, sla), late_share(trace, sla)
        p99_ms, p50_ms = figures.itl_ms.p99, figures.ttft_ms.p50
        if late is None or p99_ms is None or p50_ms is None or figures.j is None:
            print(f"{key}: too few tokens for figures", flush=True)
            return
        found.setdefault(name, []).append(figures)
        self.row(f"gpu_{key}_late", 100 * late, "%")
        self.row(f"gpu_{key}_p99_itl", p99_ms, "ms")
        self.row(f"gpu_{key}_ttft_p50", p50_ms, "ms")
        self.row(f"gpu_{key}_ttft_p99", figures.ttft_ms.p99 or 0.0, "ms")
        self.row(f"gpu_{key}_tokens_per_s", figures.output_tokens_per_s, "tokens/s")
        self.row(f"gpu_{key}_j", figures.j, "s")

    def _compare(self, label: str, found: dict[str, list[Summary]]) -> None:
        """``adaptive`` over the best static limits."""
        statics = {name: runs for name, runs in found.items() if name.startswith("static")}
        ours = found.get("adaptive", [])
        if not statics or not ours:
            return

        def mean(runs: Sequence[Summary], name: str) -> float:
            return float(np.exp(np.mean([np.log(getattr(one, name)) for one in runs])))

        best = min(statics, key=lambda name: mean(statics[name], "j"))
        theirs = statics[best]
        self.row(f"gpu_{label}_j_over_{best}", mean(ours, "j") / mean(theirs, "j"), target=1.0)
        ratio = mean(ours, "output_tokens_per_s") / mean(theirs, "output_tokens_per_s")
        self.row(f"gpu_{label}_tokens_over_{best}", ratio)
        p50 = [float(np.mean([one.ttft_ms.p50 for one in runs])) for runs in (ours, theirs)]
        self.row(f"gpu_{label}_ttft_p50_over_{best}", p50[0] / p50[1], target=1.2)

    def _policy(self, case: Case, name: str, limits: Limits | None) -> Governor:
        """A policy, which keeps what it has learned while its SLA is the same."""
        key = name, case.itl_ms, limits
        if key not in self._policies:
            policy = name if name == "adaptive" else "static"
            batching: dict[str, Any] = {"policy": policy, "sla": {"itl_ms": case.itl_ms}}
            cap, chunk = limits or (None, None)
            self._policies[key] = self._engine.governor(
                parse_batching(batching), cap=cap, chunk=chunk
            )
        return self._policies[key]

    def _arrivals(self, case: Case, seed: int) -> list[Request]:
        n = max(math.ceil(case.rate_per_s * self._sizes.seconds), 20)
        drawn = draw_traffic(load_workload(case.workload), n, None, seed).at(case.rate_per_s)
        return self._fitting(drawn)

    def _fitting(self, drawn: Sequence[Request]) -> list[Request]:
        longest = self._engine.size.max_model_len
        return [r for r in drawn if r.input_tokens + r.output_tokens < longest]


def _settled(trace: Trace, skip_s: float) -> Trace:
    """The requests that arrived from ``skip_s`` on, with their gaps."""
    first = sum(o.request.arrival_s < skip_s for o in trace.outcomes)
    gaps, later = trace.gaps, trace.gaps.request >= first
    return replace(
        trace,
        outcomes=trace.outcomes[first:],
        gaps=Gaps(gaps.length_s[later], gaps.end_s[later], gaps.request[later] - first),
    )
