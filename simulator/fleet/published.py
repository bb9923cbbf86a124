"""What a replica of the fluid fleet publishes: turns arrays into metrics by name.

``brimful``'s numbers come from ``replicas.server.autoscaling_stats`` with an ``EngineReport`` that
is filled from the fluid. So new names there are published here, too, if the report has their
inputs. For policies that read them, vLLM's own metrics are added.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from controller.capacity import capacity_error_frac, capacity_per_s, out_of_reach, sla_batch
from controller.config import Sla
from controller.models import memory
from controller.models.histogram import BINS, LogHistogram
from controller.models.lengths import REQUESTS_KEPT, LengthMoments
from controller.models.step_time import StepModel
from controller.records import EngineLimits, EngineReport, RecentSteps
from replicas.engine.seen_lengths import PROMPTS_KEPT
from replicas.profiles.profile import StepProfile
from replicas.server.autoscaling_stats import autoscaling_stats
from simulator.fleet.fluid import NONE, READY, Engine, Fleet
from simulator.fleet.ray_stages import ONGOING

RATE_WINDOW_S = 10.0  # as in the Governor
LEARN_EVERY_S = 30.0  # how often lengths are summed
# Means over the requests of the fleet that ended since the last sample.
RECENT = ("prompt_tokens", "output_tokens", "ttft_s", "itl_s")
# Equal for all replicas, until lengths are summed again.
ALIKE = ("max_running", "capacity_per_s", "capacity_error_frac", "sla_out_of_reach")
NO_MORE = (0,) * (BINS - 1)  # only their number is read, not their times


class Publisher:
    """Reads the fleet at each sample.

    Args:
        model: the step-time model that the replicas have learned.
        reads: names that the policy reads; no others are built. None: all.
    """

    def __init__(
        self,
        fleet: Fleet,
        engine: Engine,
        sla: Sla,
        model: StepModel,
        reads: tuple[str, ...] | None = None,
    ) -> None:
        self._fleet, self._engine, self._sla, self._model = fleet, engine, sla, model
        self._reads = None if reads is None else frozenset(reads)
        self._arrived: dict[str, list[tuple[float, int]]] = {}
        self._learnt_s = -LEARN_EVERY_S
        self._done = 0
        self._lengths = LengthMoments()
        self._template = _template(engine)
        self._recent = dict.fromkeys(RECENT, 0.0)
        self._alike: dict[str, float] = {}

    def sample(self, names: dict[int, str], now_s: float) -> dict[str, dict[str, float]]:
        """The metrics of each of these slots, by replica name."""
        self._learn(now_s)
        fleet, found = self._fleet, {}
        for slot, name in names.items():
            if fleet.status[slot] != READY:
                continue
            running = int(fleet.decodes[slot]) + int(fleet.prompt[slot] != NONE)
            waiting = int(fleet.waiting[slot])
            found[name] = self._wanted(slot, name, running, waiting, now_s)
            found[name][ONGOING] = float(running + waiting)
        self._arrived = {name: self._arrived[name] for name in found if name in self._arrived}
        return found

    def _wanted(
        self, slot: int, name: str, running: int, waiting: int, now_s: float
    ) -> dict[str, float]:
        if self._reads is not None and not self._reads:
            return {}
        fleet = self._fleet
        stats = self._alike | {
            **self._recent,
            "running": float(running),
            "waiting": float(waiting),
            "arrival_rate_per_s": self._rate(name, int(fleet.arrivals[slot]), now_s),
            "kv_used_frac": float(fleet.held[slot]) / self._engine.kv_tokens,
            "decoding": float(fleet.decodes[slot]),
            "prompt_backlog_tokens": float(fleet.backlog[slot].sum() + fleet.prompt_left[slot]),
        }
        if self._reads is None or not self._reads <= stats.keys():
            stats |= self._own(slot, running, waiting, stats)
        if self._reads is None:
            return stats
        return {key: value for key, value in stats.items() if key in self._reads}

    def _own(
        self, slot: int, running: int, waiting: int, known: Mapping[str, float]
    ) -> dict[str, float]:
        """The numbers that Brimful's replicas publish."""
        fleet = self._fleet
        decoding = int(fleet.decodes[slot])
        report = replace(
            self._template,
            running=running,
            waiting=waiting,
            decoding=decoding,
            prefilling=running + waiting - decoding,
            kv_used_tokens=int(fleet.held[slot]),
            arrivals=int(fleet.arrivals[slot]),
            arrival_rate_per_s=known["arrival_rate_per_s"],
            prompt_backlog_tokens=int(known["prompt_backlog_tokens"]),
            ttft=LogHistogram((int(fleet.firsts[slot]), *NO_MORE)),
            late_ttft=int(fleet.lates[slot]),
        )
        return autoscaling_stats(
            report,
            most_ongoing=self._engine.max_ongoing,
            counts_late=self._sla.ttft_ms is not None,
        )

    def _rate(self, name: str, arrivals: int, now_s: float) -> float:
        marks = self._arrived.setdefault(name, [])
        marks.append((now_s, arrivals))
        while len(marks) > 2 and marks[1][0] <= now_s - RATE_WINDOW_S:
            marks.pop(0)
        (since_s, then) = marks[0]
        span_s = now_s - since_s
        return (arrivals - then) / span_s if span_s > 0 else arrivals / RATE_WINDOW_S

    def _learn(self, now_s: float) -> None:
        """Update the lengths of recently ended requests, and the capacity that follows."""
        fleet = self._fleet
        done = int(fleet.counts[0])
        if done > self._done:
            ended = fleet.done[self._done : done]
            outputs = fleet.output[ended]
            several = ended[outputs > 1]
            itl = (fleet.end_s[several] - fleet.first_s[several]) / (fleet.output[several] - 1)
            self._recent = {
                "prompt_tokens": float(fleet.input[ended].mean()),
                "output_tokens": float(outputs.mean()),
                "ttft_s": float((fleet.first_s[ended] - fleet.arrival_s[ended]).mean()),
                "itl_s": float(itl.mean()) if len(several) else 0.0,
            }
        self._done = done
        if now_s - self._learnt_s < LEARN_EVERY_S:
            return
        self._learnt_s = now_s
        ready = max(int((fleet.status == READY).sum()), 1)
        last = fleet.done[max(done - ready * REQUESTS_KEPT, 0) : done]
        self._lengths = moments(fleet.input[last], fleet.output[last])
        self._template = self._limits()
        stats = autoscaling_stats(self._template, most_ongoing=self._engine.max_ongoing)
        self._alike = {name: stats[name] for name in ALIKE if name in stats}

    def _limits(self) -> EngineReport:
        """A report with cap, capacity and reach as the controller decides them under `adaptive`."""
        engine, lengths, model = self._engine, self._lengths, self._model
        itl_s = self._sla.itl_s
        unreachable = itl_s is not None and out_of_reach(model, itl_s)
        cap = float(engine.max_num_seqs)
        if lengths.output:
            quantile = memory.theta(0.02)
            held = lengths.mean_held + 8
            cap = min(
                cap,
                float(memory.exact_batch(engine.kv_tokens, held, lengths.variance_held, quantile)),
            )
            if itl_s is not None:
                cap = min(cap, sla_batch(model, lengths, itl_s))
        running = max(int(cap), 1)
        carried = capacity_per_s(model, lengths, running, itl_s)
        return replace(
            self._template,
            max_running=running,
            lengths=lengths,
            sla_out_of_reach=unreachable,
            capacity_per_s=carried,
            capacity_error_frac=0.0 if carried is None else capacity_error_frac(model, lengths),
            prompts=self._prompts(),
            model=model,
        )

    def _prompts(self) -> LengthMoments:
        """The last prompts, in the number that all replicas remember together."""
        fleet = self._fleet
        came, ready = int(fleet.counts[1]), max(int((fleet.status == READY).sum()), 1)
        last = fleet.input[max(came - ready * PROMPTS_KEPT, 0) : came]
        return moments(last, np.zeros_like(last))


def moments(inputs: np.ndarray, outputs: np.ndarray) -> LengthMoments:
    """The sums that the Governor makes of its last requests."""
    return LengthMoments(
        len(inputs),
        int(inputs.sum()),
        int(outputs.sum()),
        int((inputs**2).sum()),
        int((outputs**2).sum()),
        int((inputs * outputs).sum()),
    )


def learnt(profile: StepProfile, engine: Engine, decodes: int, held: float) -> StepModel:
    """The linear model that fits this accelerator's steps near such a batch."""
    base = profile.step_s(decodes, decodes * held, 0, 0)
    tokens = 128.0
    per_decode = (profile.step_s(decodes + 8, decodes * held, 0, 0) - base) / 8
    per_kv = (profile.step_s(decodes, decodes * held + 10_000, 0, 0) - base) / 10_000
    most = profile.step_s(decodes, decodes * held, tokens * 4, 0)
    per_prefill = (most - base) / (tokens * 4)
    per_context = (profile.step_s(decodes, decodes * held, 0, 1e6) - base) / 1e6
    fixed = base - per_decode * decodes - per_kv * decodes * held
    return StepModel(fixed, per_decode, per_kv, per_prefill, per_context, 0.0)


def _template(engine: Engine) -> EngineReport:
    limits = EngineLimits(
        engine.max_num_seqs, engine.max_num_batched_tokens, int(engine.kv_tokens), 16
    )
    nothing = LogHistogram()
    return EngineReport(
        replica_id="", group="", seq=1, engine=limits, mode="leased", reason="load",
        max_running=engine.max_num_seqs, token_budget=engine.max_num_batched_tokens, running=0,
        waiting=0, decoding=0, prefilling=0, kv_used_tokens=0, arrivals=0, finished=0,
        preemptions=0, arrival_rate_per_s=0.0, recent=RecentSteps(), lengths=LengthMoments(),
        itl=nothing, ttft=nothing,
    )  # fmt: skip
