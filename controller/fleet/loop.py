"""The controller's loop: pools reports, decides each replica's limits. Pure; time comes in."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from controller.capacity import capacity_error_frac, capacity_per_s, out_of_reach
from controller.config import BatchingConfig
from controller.fleet.role_pool import SETTLED_S, RolePool
from controller.law.rows import RowHistory
from controller.law.step_model import GUESS_STEPS, PRIOR_STEPS, Fit, guess
from controller.models.lengths import LengthMoments
from controller.models.step_time import StepModel, StepStats, fit
from controller.models.survival import Exposure
from controller.policies.base import Decision, Memory, Pool, Seen
from controller.policies.registry import POLICIES
from controller.records import BatchLimits, EngineLimits, ReplicaReport, Role
from controller.report_checks import check_report
from controller.roles import as_prefill
from controller.switch import Switch, Switches, is_on, merged, next_switch

POOL_PERIOD_S = 0.25  # age of the pooled model, at most: half a sync
FEW = 16  # in a group of up to 16 replicas a new one is pooled at once; 1,000 join in half a second
UNKNOWN_STEP_S = 0.05  # first guess of a step without an SLA
UNLIKE = 1.5  # replicas of a group differ by a few percent; a throttled clock halves the speed
# Reports of all groups; one takes 2.4 ms of CPU time (docs/decisions/0050).
MOST_PER_S = 250.0
GONE_LEASES = 3  # a replica without a report for three leases is gone, not late


@dataclass(slots=True)
class _Member:
    """One replica.

    Args:
        report: its last.
        config: the configuration of its role.
        base: the configuration that came with the report.
        history: rows of its steps.
        fit: their step-time model; None before the first row.
        limits: decided after this report was pooled.
        tail_frac: as of ``StepModel``; None: no target was found yet.
    """

    report: ReplicaReport
    config: BatchingConfig
    base: BatchingConfig
    received_s: float
    history: RowHistory
    fit: Fit | None = None
    limits: BatchLimits = field(init=False)
    tail_frac: float | None = None

    @property
    def stats(self) -> StepStats:
        return self.fit.stats if self.fit else StepStats()


@dataclass(slots=True)
class _Group:
    members: dict[str, _Member] = field(default_factory=dict)
    pool: Pool = field(default_factory=Pool)
    stats: StepStats = field(default_factory=StepStats)  # of all that are alike, as pooled
    counted: dict[str, StepStats] = field(default_factory=dict)  # of each of these
    pooled_s: float = float("-inf")
    resumed_s: float = float("-inf")  # after a time in which no report came of any replica
    unlike: frozenset[str] = frozenset()
    roles: RolePool[str] = field(default_factory=RolePool)
    base: BatchingConfig | None = None  # the one that came last, by which roles go
    role_capacity_per_s: float | None = None  # of each, if some compute prompts for others


class ControlLoop:
    """Exchanges reports for limits, for any number of groups of replicas.

    Attributes:
        slower: factor of the configured period and lease, above 1 if there would be more than
            ``MOST_PER_S`` reports a second.
    """

    def __init__(self) -> None:
        self._exchanges = 0
        self._groups: dict[str, _Group] = {}
        self._switches: Switches = ()
        self.slower = 1.0

    def exchange(self, report: ReplicaReport, config: BatchingConfig, now_s: float) -> BatchLimits:
        """Take one replica's report, give its limits.

        Raises:
            ReportError: the report cannot be true; nothing was changed.
            ConfigError: the bounds do not fit the replica's engine; nothing was changed.
        """
        check_report(report)
        self._exchanges += 1
        self.learn_switches(report.switches)
        config.upper_bound(report.engine.max_num_seqs)
        group = self._groups.setdefault(report.group, _Group())
        last = group.members.get(report.replica_id)
        if last and _old_news(report, last, now_s):
            return self._with_switches(last.limits)
        base = config
        if last is None or last.base != base:
            group.base = base
        if base.roles is not None and report.role == "prefill":
            config = as_prefill(base)
        restarted = last is not None and report.seq < last.report.seq
        member = group.members[report.replica_id] = _Member(
            report,
            config,
            base,
            now_s,
            RowHistory() if last is None or restarted else last.history,
            tail_frac=last.tail_frac if last else None,
        )
        # The policy did not cause what happened while its limits were not enforced.
        off_before = last is not None and not last.report.enforced
        memory = {} if off_before and report.enforced else report.memory
        try:
            member.limits = self._decide(group, member, memory, now_s, joins=last is None)
        except Exception:
            if last is None:
                group.members.pop(report.replica_id, None)
            else:
                group.members[report.replica_id] = last
            raise
        return member.limits

    def _decide(
        self, group: _Group, member: _Member, memory: Memory, now_s: float, *, joins: bool
    ) -> BatchLimits:
        report, config, base = member.report, member.config, member.base
        member.history.add(report.rows)
        prior = _others(group, report.replica_id)
        own = prior or report.model or guess(config.sla.itl_s or UNKNOWN_STEP_S)
        weight = PRIOR_STEPS if prior else GUESS_STEPS
        rows = member.history.rows
        member.fit = own_fit = Fit(rows, own, weight, report.engine.graph_tokens)
        if report.model is not None and not own_fit.model.eager_s:
            # No row is beyond the CUDA graphs: the known launch time is kept, or it would be tried.
            own_fit.model = replace(own_fit.model, eager_s=report.model.eager_s)
        joins_few = joins and len(group.members) <= FEW
        if now_s >= group.pooled_s + POOL_PERIOD_S or joins_few:
            self._forget_gone(now_s)
            self._pool(group, now_s)
            group.role_capacity_per_s = None
            if group.base is not None and self._gives_roles(report.group, group.base):
                self._assign_roles(group, group.base, now_s)
        seen = Seen(config, report, rows, member.fit, group.pool, now_s)
        decision, memory = POLICIES[config.policy](memory, seen)
        if decision.model is not None:
            member.tail_frac = decision.model.tail_frac
        limits = replace(
            self._limits(group, base, report, decision),
            memory=memory,
            generation=report.generation,
            wanted_row=member.history.wanted,
            usual_speed=member.fit.usual,
        )
        if base.roles is not None:
            role: Role = "mixed"  # if nothing is enforced
            if self._gives_roles(report.group, base):
                role = group.roles.roles.get(report.replica_id, report.role or "mixed")
            limits = replace(limits, role=role)
        return limits

    def switch(self, *, enforce: bool, group: str | None, unix_s: float) -> Switch:
        """Switch control off or on for a group, or for all (None), those that come later too.

        Args:
            unix_s: now, Unix time.
        """
        made = next_switch(self._switches, enforce=enforce, group=group, unix_s=unix_s)
        self.learn_switches((made,))
        return made

    def learn_switches(self, switches: Switches) -> None:
        """Take over those that are newer than what is known."""
        if switches != self._switches:
            self._switches = merged(self._switches, switches)

    @property
    def switches(self) -> Switches:
        """Those that are known."""
        return self._switches

    def _with_switches(self, limits: BatchLimits) -> BatchLimits:
        known = limits.switches == self._switches
        return limits if known else replace(limits, switches=self._switches)

    def configs(self) -> set[BatchingConfig]:
        """The configurations that any replica is under now."""
        return {m.config for group in self._groups.values() for m in group.members.values()}

    def _forget_gone(self, now_s: float) -> None:
        # Over all groups: no replica reports from a group whose application was removed.
        for name, group in list(self._groups.items()):
            for replica_id, member in list(group.members.items()):
                if member.received_s < now_s - GONE_LEASES * self.slower * member.config.lease_s:
                    del group.members[replica_id]
            if not group.members:
                del self._groups[name]
        members = [one for group in self._groups.values() for one in group.members.values()]
        self.slower = max(sum(1 / one.base.period_s for one in members) / MOST_PER_S, 1.0)

    def _pool(self, group: _Group, now_s: float) -> None:
        members = group.members
        group.unlike = unlike(members)
        reports = [m.report for m in members.values()]
        # Lengths of a prefill engine date from before it had this role.
        decode = [r for r in reports if r.role != "prefill"] or reports
        lengths = sum((r.lengths for r in decode), LengthMoments())
        outputs = Exposure.nothing()
        for report in decode:
            outputs = outputs.plus(report.exposure)
        group.counted = {name: m.stats for name, m in members.items() if name not in group.unlike}
        group.stats = sum(group.counted.values(), StepStats())
        model = fit(group.stats)
        if model is not None:
            tails = [m.tail_frac for m in members.values() if m.tail_frac is not None]
            # The median of what replicas found, so that a newcomer need not find it first.
            model = replace(model, tail_frac=median(tails) if tails else 0.0)
        group.pool = Pool(len(reports), lengths, model, outputs)
        if group.base is not None and now_s > group.pooled_s + self.slower * group.base.lease_s:
            group.resumed_s = now_s
        group.pooled_s = now_s

    def _gives_roles(self, name: str, config: BatchingConfig) -> bool:
        enforced = config.enforce and is_on(self._switches, name)
        return enforced and config.roles is not None

    def _assign_roles(self, group: _Group, config: BatchingConfig, now_s: float) -> None:
        stay = {
            name: member.report
            for name, member in group.members.items()
            if not member.report.leaving
            and member.received_s >= now_s - self.slower * member.base.lease_s
        }
        group.roles.keep(stay, now_s)
        # After a pause of the controller every report is old, whatever its replica does.
        if now_s >= group.resumed_s + SETTLED_S:
            group.roles.see(stay, config, group.pool, now_s)
        group.role_capacity_per_s = group.roles.capacity_per_s

    def _limits(
        self, group: _Group, config: BatchingConfig, report: ReplicaReport, decision: Decision
    ) -> BatchLimits:
        pool, itl_s = group.pool, config.sla.itl_s
        capacity, error_frac = None, 0.0
        if pool.model is not None:
            together = decision.max_running
            if not (config.enforce and is_on(self._switches, report.group)):  # no cap is applied
                together = _held_uncapped(report.engine, pool.lengths)
            held_s = None if itl_s is None else report.itl_frac * itl_s
            capacity = group.role_capacity_per_s
            if capacity is None:
                capacity = capacity_per_s(pool.model, pool.lengths, together, held_s)
        if pool.model is not None and capacity is not None:
            error_frac = capacity_error_frac(pool.model, pool.lengths)
        own = decision.model
        if own is None and report.replica_id in group.unlike:
            member = group.members[report.replica_id]
            own = fit(member.stats)
        models = [m for m in (pool.model, decision.model) if m is not None]
        return BatchLimits(
            lease_s=self.slower * config.lease_s,
            period_s=self.slower * config.period_s,
            max_running=decision.max_running,
            token_budget=decision.token_budget,
            reason=decision.reason,
            enforce=config.enforce,
            capacity_per_s=capacity,
            capacity_error_frac=error_frac,
            model=own or pool.model,
            replicas=pool.replicas,
            # Either model: the group's sets the capacity, the replica's own its published cap.
            sla_out_of_reach=itl_s is not None and any(out_of_reach(m, itl_s) for m in models),
            switches=self._switches,
            target_s=decision.target_s,
            target_full_s=decision.target_full_s,
            counted_waiting=decision.counted_waiting,
            by_class=decision.by_class,
            reserve=decision.reserve,
            late_anyway=decision.late_anyway,
        )

    def sizes(self) -> dict[str, int]:
        """How many replicas each group has."""
        return {name: len(group.members) for name, group in self._groups.items()}

    def snapshot(self, now_s: float) -> dict[str, Any]:
        """Everything the loop knows, for people: groups, their pool, each replica and its limits.

        Returns:
            ``{"exchanges", "switches", "groups": {name: {"policy", "on", "pool", "replicas": {id:
            {"age_s", "batching", "report", "limits"}}}}}`` with records as they are; exchanges are
            counted over all replicas since this life began. A group whose replicas bring several
            configurations names all their policies; ``on``: not switched off.
        """
        return {
            "exchanges": self._exchanges,
            "switches": self._switches,
            "groups": {
                name: {
                    "policy": ", ".join(sorted({m.config.policy for m in group.members.values()})),
                    "on": is_on(self._switches, name),
                    "pool": group.pool,
                    "replicas": {
                        replica_id: {
                            "age_s": now_s - member.received_s,
                            "batching": member.config,
                            "report": member.report,
                            "limits": member.limits,
                        }
                        for replica_id, member in group.members.items()
                    },
                }
                for name, group in self._groups.items()
            },
        }


def unlike(members: Mapping[str, _Member]) -> frozenset[str]:
    """Replicas whose steps take another time than their group's: a throttled or shared GPU.

    Each replica's own model predicts the group's average batch. One that is ``UNLIKE`` times off
    the median is left out of the group's model and gets its own. Of two, neither is the odd one.
    """
    known = {
        name: (m.report, model)
        for name, m in members.items()
        if m.report.recent.steps and m.fit and (model := fit(m.stats)) is not None
    }
    if len(known) < 3:
        return frozenset()
    decodes = median(r.recent.decodes for r, _ in known.values())
    held = median(r.lengths.mean_held for r, _ in known.values())
    took = {
        name: model.predict_s(decodes, decodes * held, 0, 0) for name, (_, model) in known.items()
    }
    usual_s = median(took.values())
    return frozenset(
        name for name, took_s in took.items() if not usual_s / UNLIKE <= took_s <= usual_s * UNLIKE
    )


def _others(group: _Group, replica_id: str) -> StepModel | None:
    """The step-time model of a group's other replicas; None: not known, or this one is unlike."""
    if replica_id in group.unlike:
        return None
    whole, own = group.stats, group.counted.get(replica_id)
    return fit(whole if own is None else whole - own)


def _old_news(report: ReplicaReport, last: _Member, now_s: float) -> bool:
    """Sent twice or overtaken. After a lease, a lower number is a restarted engine."""
    return report.seq <= last.report.seq and now_s < last.received_s + last.limits.lease_s


def _held_uncapped(engine: EngineLimits, lengths: LengthMoments) -> int:
    """Requests that run together if no cap is applied: as many as its size and memory hold."""
    if not (lengths.mean_held and engine.kv_tokens):  # 0: the model keeps none
        return engine.max_num_seqs
    return max(int(min(engine.max_num_seqs, engine.kv_tokens / lengths.mean_held)), 1)
