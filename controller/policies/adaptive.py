"""``adaptive``: as many requests and prompt tokens as the SLA and KV memory hold (docs/control.md).

Each report brings the replica's newest rows. They give the step-time model, the late share and the
demand; from these follow the step-time target and the cap.
"""

import math
from dataclasses import asdict, dataclass, replace

import numpy as np

from controller.capacity import out_of_reach, step_limit_s
from controller.law.cap import by_latency, by_memory, reserve
from controller.law.forecast import AGE, COUNT, HELD, LEFT, Forecast
from controller.law.rows import DECODES, KEPT, KV, PREFILL, TOOK_S, StepRows
from controller.law.step_model import alone_s, predict_s, scaled
from controller.law.target import AIM, KNOWN_STEPS, Targets, TargetSearch, in_time_s, theta_s
from controller.models.arrays import Bools, Floats
from controller.models.demand import MEMORY_S, TYPICAL_PROMPT, Demand
from controller.models.preempted_share import PRIORITY_SHARE, MemoryMargin, worth_of
from controller.models.step_time import FEATURES, MIN_STEPS, StepModel
from controller.models.survival import ENDS_KEPT, Exposure, Survival
from controller.policies.base import Decision, Memory, Seen
from controller.records import ClassTarget, Reason, Reserve

LONG_MEMORY_S = 300.0  # of the mean model; a request starts if this or the current one permits it
PHASE_ROWS = 100
NEWEST_ROWS = 64  # their decodes tell which promises hold now
# Without an SLA: preempted requests for each answer's worth of work, and the greatest share.
PAYS, MOST_PREEMPTED = 0.05, 0.9


@dataclass(slots=True)
class _Remembered:
    """What is carried from one decision to the next.

    Args:
        row: the number of the last row that is counted below.
        seconds, prefill, decodes: sums over the rows of the last minute, faded.
        late: of each promise, decodes of the last minute, and those late because of the decodes of
            their step alone; decaying sums.
        costs, costs_weight: the model's mean over five minutes, decaying sums.
        finished, preemptions: of the last report; None: another policy caused what was before.
        generation: of the configuration of the last report.
        margin: the share of KV memory that is kept free.
    """

    row: int = -1
    seconds: float = 0.0
    prefill: float = 0.0
    decodes: float = 0.0
    late: tuple[tuple[float, float], ...] = ()
    costs: tuple[float, ...] = ()
    costs_weight: float = 0.0
    finished: int | None = None
    preemptions: int | None = None
    generation: int = 0
    margin: float | None = None


def decide(memory: Memory, seen: Seen) -> tuple[Decision, Memory]:
    """The limits of one replica."""
    kept, numbers = _Remembered(**memory), seen.rows.numbers
    if len(numbers) and kept.row > numbers[-1]:  # of an engine that had the id before
        kept = _Remembered()
    return _Law(kept, seen).decision()


@dataclass(frozen=True, slots=True)
class _Promise:
    """A time between tokens that is promised: the SLA's, or a class's.

    Args:
        column: of the class in the rows; None: all decodes have it.
        itl_s: D.
        allowed: a'.
    """

    column: int | None
    itl_s: float
    allowed: float

    def decodes(self, rows: StepRows) -> Floats:
        """Decodes under it in each row, shape (n,)."""
        decodes: Floats = rows.table[:, DECODES]
        return decodes if self.column is None else rows.of_class(self.column)


class _Law:
    def __init__(self, kept: _Remembered, seen: Seen) -> None:
        self._kept, self._seen = kept, seen
        self._config, self._report = seen.config, seen.report
        self._model = seen.fit.model
        # Limits arrive half a second late, so a phase counts once it has most of the newest rows.
        speeds = seen.fit.speeds[-PHASE_ROWS:]
        self._now = scaled(self._model, float(np.median(speeds)) if len(speeds) else 1.0)
        self._rows = seen.rows.where(seen.fit.counted)
        self._speeds: Floats = seen.fit.speeds[seen.fit.counted]  # of these rows
        self._promises = self._promised()

    def _promised(self) -> list[_Promise]:
        frac, sla = self._report.itl_frac, self._config.sla
        if self._report.slos:
            return [
                _Promise(k, one.itl_s * frac, AIM * (1 - one.percentile / 100))
                for k, one in enumerate(self._report.slos)
                if one.itl_s < math.inf
            ]
        if sla.itl_s is None:
            return []
        return [_Promise(None, sla.itl_s * frac, AIM * (1 - sla.percentile / 100))]

    def decision(self) -> tuple[Decision, Memory]:
        self._count(self._rows.after(self._kept.row))
        demand = self._demand()
        targets = self._targets(demand)
        here = self._decoding()
        decision = self._capped({one: targets[one] for one in here})
        if targets:
            # Capacity is published for the SLA, or for the class that is nearest to it.
            sla_s = self._config.sla.itl_s or 0.0
            main = min(targets, key=lambda one: abs(one.itl_s - sla_s))
            tail_frac = max(main.itl_s / targets[main].full_s - 1, 0.0)
            by_class = [ClassTarget(0.0, 0.0) for _ in self._report.slos]
            for one, found in targets.items():
                if one.column is not None:
                    each = ClassTarget(found.now_s, found.full_s, found.inside_s)
                    by_class[one.column] = each
            decision = replace(
                decision,
                target_s=targets[main].now_s,
                target_full_s=targets[main].full_s,
                counted_waiting=self._report.waiting,
                by_class=tuple(by_class),
                model=replace(self._model, tail_frac=tail_frac),
                late_anyway=self._late_anyway(main),
            )
        return decision, asdict(self._kept)

    def _decoding(self) -> list[_Promise]:
        """The promises that any of the last steps' decodes had."""
        newest = self._rows.where(self._rows.numbers > self._kept.row - NEWEST_ROWS)
        return [one for one in self._promises if one.column is None or one.decodes(newest).any()]

    def _count(self, new: StepRows) -> None:
        """Sums over the last minute of steps, in the order of the rows."""
        kept, table, row = self._kept, new.table, self._kept.row
        if not len(new):
            return
        took_s = table[:, TOOK_S]
        since_s = took_s[::-1].cumsum()[::-1] - took_s
        weight, fade = np.exp(-since_s / MEMORY_S), math.exp(-took_s.sum() / MEMORY_S)
        kept.seconds = fade * kept.seconds + float(weight @ took_s)
        kept.prefill = fade * kept.prefill + float(weight @ table[:, PREFILL])
        kept.decodes = fade * kept.decodes + float(weight @ table[:, DECODES])
        for index, one in enumerate(self._promises):
            decodes = one.decodes(new)
            late = decodes * self._late_alone(new, one.itl_s)
            tokens, before = kept.late[index] if index < len(kept.late) else (1.0, 0.0)
            both = fade * tokens + float(weight @ decodes), fade * before + float(weight @ late)
            kept.late = (*kept.late[:index], both, *kept.late[index + 1 :])
        kept.row = int(new.numbers[-1])
        if kept.row < KNOWN_STEPS:
            return  # the model is a guess, and would be remembered for minutes
        keep = math.exp(-float(took_s.sum()) / LONG_MEMORY_S)
        speed = float(self._seen.fit.speeds[self._seen.rows.numbers > row].mean())
        before_costs = kept.costs or (0.0,) * FEATURES
        kept.costs = tuple(
            keep * old + (1 - keep) * cost * speed
            for old, cost in zip(before_costs, self._model.costs, strict=True)
        )
        kept.costs_weight = keep * kept.costs_weight + 1 - keep

    def _late_anyway(self, one: _Promise) -> float:
        """l0."""
        index = self._promises.index(one)
        tokens, late = self._kept.late[index] if index < len(self._kept.late) else (1.0, 0.0)
        return min(late / max(tokens, 1.0), 1.0)

    def _speeds_of(self, rows: StepRows) -> Floats:
        speeds: Floats = self._speeds[np.searchsorted(self._rows.numbers, rows.numbers)]
        return speeds

    def _late_alone(self, rows: StepRows, itl_s: float) -> Bools:
        """Which steps were late by their decodes alone: s0 > theta, shape (n,)."""
        table, speeds = rows.table, self._speeds_of(rows)
        expected_s, took_s = predict_s(self._model, table) * speeds, table[:, TOOK_S]
        decodes_s = alone_s(self._model, table) * speeds
        late: Bools = (took_s > itl_s) & (decodes_s > theta_s(expected_s, took_s, itl_s))
        return late

    def _demand(self) -> Demand:
        kept, starts = self._kept, self._seen.rows.starts
        prompts = starts if len(starts) else np.array([TYPICAL_PROMPT])
        waiting = self._report.waiting * float(prompts.mean()) / MEMORY_S
        per_s = kept.prefill / kept.seconds if kept.seconds else 0.0
        decodes = kept.decodes / kept.prefill if kept.prefill else 0.0
        return Demand(prompts, per_s + waiting, decodes)

    @property
    def _mean(self) -> StepModel:
        kept = self._kept
        if not kept.costs_weight:
            return self._model
        costs = [cost / kept.costs_weight for cost in kept.costs]
        mean = StepModel.of(costs, self._model.sigma_s)
        return replace(mean, graph_tokens=self._model.graph_tokens, eager_s=self._model.eager_s)

    def _targets(self, demand: Demand) -> dict[_Promise, Targets]:
        if not self._promises:
            return {}
        # theta of the first steps shows the error of a young model, not the engine's.
        rows = self._rows.after(MIN_STEPS)
        table = rows.table
        mixed = rows.where((table[:, PREFILL] > 0) & (table[:, DECODES] > 0))
        expected_s = predict_s(self._model, mixed.table) * self._speeds_of(mixed)
        took_s = mixed.table[:, TOOK_S]
        # With a target below the longest step of decodes alone, prompts would have to wait.
        least_s = self._model.mixed_s + float(alone_s(self._now, table[-KEPT:]).max(initial=0.0))
        search = TargetSearch(self._now, self._mean, demand, self._kv_per_decode(), least_s)
        known = self._kept.row >= KNOWN_STEPS
        return {
            one: search.targets(
                in_time_s(expected_s[-KEPT:], took_s[-KEPT:], one.itl_s),
                self._late_anyway(one),
                one.itl_s,
                one.allowed,
                known=known,
            )
            for one in self._promises
        }

    def _kv_per_decode(self) -> float:
        table = self._rows.table[-50:]
        decodes = float(table[:, DECODES].sum())
        return float(table[:, KV].sum()) / decodes if decodes else TYPICAL_PROMPT

    def _capped(self, targets: dict[_Promise, Targets]) -> Decision:
        """The cap for all that may come.

        Args:
            targets: of the promises that requests here have.
        """
        config, report = self._config, self._report
        b_min = max(config.max_running.min, 1)
        b_max = config.upper_bound(report.engine.max_num_seqs)
        forecast = Forecast(Survival(self._outputs()))
        table, one_more = report.batch_table, self._newcomer()
        running, newcomer = forecast.of(table), forecast.of(one_more)
        most = max(b_max - report.running, 0)
        by: dict[Reason, float] = {"bound": float(most)}
        # Either the current or the mean model permits a start: an engine may be slow for seconds.
        models = self._now, self._mean
        for one, found in targets.items():
            # A batch that hardly changes tells little of c0, so an SLA is out of reach, and
            # requests start all the same, only if both models say so.
            reach = [model for model in models if not out_of_reach(model, one.itl_s)] or models
            limit_s = min(found.now_s, one.itl_s)
            room = max(
                by_latency(model, running, newcomer, step_limit_s(model, one.itl_s, limit_s))
                for model in reach
            )
            by["sla"] = min(by.get("sla", math.inf), room)
        kept_free = Reserve()
        if report.engine.kv_tokens:
            held = float(table[:, HELD] @ table[:, COUNT])
            others = max(report.kv_used_tokens - held, 0.0)
            kept = self._margin() * report.engine.kv_tokens
            tokens = report.engine.kv_tokens - kept - others
            room = by_memory(running, newcomer, tokens, most)
            by["memory"] = room
            prompt = float(one_more[:, HELD] @ one_more[:, COUNT])
            kept_free = reserve(running, newcomer, report.running, held, prompt, room)
            kept_free = replace(kept_free, fixed=kept_free.fixed + kept)
        reason = min(by, key=lambda name: by[name])
        cap = report.running + math.floor(by[reason])
        if not b_min < cap < b_max:
            reason, cap = "bound", min(max(cap, b_min), b_max)
        return Decision(cap, reason, reserve=kept_free)

    def _outputs(self) -> Exposure:
        """Output lengths of the replica's requests; while few have ended, the group's as well."""
        own, group = self._report.exposure, self._seen.pool.outputs
        missing = ENDS_KEPT - float(own.ended.sum())
        ends = float(group.ended.sum())
        if missing <= 0 or ends <= 0:
            return own
        return own.plus(group, missing / max(ends, missing))

    def _newcomer(self) -> Floats:
        """One request that may come: the mean of the queue; if it is empty, of what came before."""
        queue = self._report.queue_table
        if len(queue):
            one = queue.copy()
            one[:, COUNT] /= one[:, COUNT].sum()
            return one
        starts, table = self._seen.rows.starts, self._report.batch_table
        prompt = float(starts.mean()) if len(starts) else TYPICAL_PROMPT
        if not len(table):
            return np.array([[prompt, 0.0, math.inf, 1.0]])
        one = np.zeros_like(table)
        one[:, HELD], one[:, LEFT] = prompt, table[:, AGE] + table[:, LEFT]
        one[:, COUNT] = table[:, COUNT] / table[:, COUNT].sum()
        return one

    def _paying_share(self) -> float:
        """The share of requests that may be preempted, without an SLA.

        An answer is worth as many steps of a slot as it has tokens. To compute the c tokens that it
        holds again takes (c3 + c4 c / 2) c seconds, and a slot's step is worth c0 / B.
        """
        lengths, model = self._seen.pool.lengths, self._model
        held = lengths.mean_held
        again_s = (model.c3 + model.c4 * held / 2) * held
        steps = again_s * max(self._report.running, 1) / max(model.c0, 1e-9)
        return min(PAYS * lengths.mean_output / max(steps, 1.0), MOST_PREEMPTED)

    def _margin(self) -> float:
        """The share of KV memory kept free, updated by what happened since the last report."""
        kept, report, config = self._kept, self._report, self._config
        allowed, by_priority = config.preempted_at_most, report.engine.by_priority
        if allowed is None:
            allowed = PRIORITY_SHARE if by_priority else self._paying_share()
        margin = MemoryMargin(allowed, by_priority=by_priority)
        if kept.margin is not None:
            margin.value = kept.margin
        same = kept.generation == report.generation
        if report.enforced and same and kept.finished is not None:
            ended = max(report.finished - kept.finished, 0)
            worth = 1.0
            if config.preempted_at_most is not None and config.preempted_per_gap:
                worth = worth_of(int(report.lengths.mean_output))
            margin.finished(ended * worth)
            margin.preempted(max(report.preemptions - (kept.preemptions or 0), 0))
        kept.finished, kept.preemptions = report.finished, report.preemptions
        kept.generation = report.generation
        kept.margin = margin.value
        return margin.value
