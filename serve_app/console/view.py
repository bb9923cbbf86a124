"""The data of the console's page: plain JSON, from a snapshot and Ray Serve's deployments. Pure.

Everything that users name (models, groups, applications) is text in it, and the page puts it on the
screen as text.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from controller.config import Sla
from serve_app.console.decisions import Decision, Decisions, Key
from serve_app.console.deployments import Deployment
from serve_app.console.series import ATTAINED_S, POINTS, Series, attained, stalls
from serve_app.explain import explanations
from serve_app.snapshot import ReplicaStatus, refused_lines, replicas_of, switched_off

LOG_LINES = 100
MODEL_COLUMNS = ("unix_s", "demand_per_s", "capacity_per_s", "replicas", "wanted", "itl", "ttft")
DIGEST = 9  # of a group's name: the dash and eight digits after the model's name


@dataclass(slots=True)
class View:
    """All that the page may ask for, as of the last read."""

    _replicas: dict[Key, Series] = field(default_factory=dict)
    _models: dict[str, deque[tuple[Any, ...]]] = field(default_factory=dict)
    _log: deque[Decision] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    _decisions: Decisions = field(default_factory=Decisions)
    _snapshot: dict[str, Any] = field(default_factory=lambda: {"groups": {}})
    _fleet: dict[str, Any] = field(default_factory=dict)

    def look(
        self, snapshot: dict[str, Any], deployments: Sequence[Deployment], unix_s: float
    ) -> None:
        """Take the controller's and Ray Serve's present state."""
        statuses = {(one.group, one.replica): one for one in replicas_of(snapshot)}
        for group, known in snapshot["groups"].items():
            for replica_id, one in known["replicas"].items():
                series = self._replicas.setdefault((group, replica_id), Series())
                series.add(one["report"], one["limits"].max_running, unix_s)
        self._replicas = {key: self._replicas[key] for key in statuses}
        self._log.extend(self._decisions.since_last(statuses, deployments, unix_s))
        self._snapshot = snapshot
        models = [*self._of_groups(snapshot, statuses, deployments, unix_s)]
        self._note(models, unix_s)
        emulated = {one["group"] for one in models if one["emulated"]}
        self._fleet = {
            "version": snapshot["version"],
            "started_unix_s": snapshot["started_unix_s"],
            "read_unix_s": round(unix_s, 3),
            "attained_s": ATTAINED_S,
            "switched_off": switched_off(snapshot),
            "models": models + _starting(deployments, statuses),
            "replicas": [self._row(one, emulated) for one in statuses.values()],
            "refused": refused_lines(snapshot),
            "log": [one.to_json() for one in reversed(self._log)],
        }

    @property
    def fleet(self) -> dict[str, Any]:
        """Models, replicas and log; empty before the first read."""
        return self._fleet

    def replica(self, group: str, replica_id: str, after_unix_s: float) -> dict[str, Any] | None:
        """The reason of a replica's cap, and its points after that time; None: no such replica."""
        series = self._replicas.get((group, replica_id))
        if series is None:
            return None
        known = self._snapshot["groups"][group]
        alone = {group: {**known, "replicas": {replica_id: known["replicas"][replica_id]}}}
        (explained,) = explanations({"groups": alone})
        sla: Sla = known["replicas"][replica_id]["batching"].sla
        points = series.after(after_unix_s)
        return {**asdict(explained), "sla": sla.model_dump(), "series": points}

    def model(self, group: str, after_unix_s: float) -> dict[str, Any] | None:
        """A model's points after that time; None: no such model."""
        if (points := self._models.get(group)) is None:
            return None
        newer = [point for point in points if point[0] > after_unix_s]
        columns = {name: [p[place] for p in newer] for place, name in enumerate(MODEL_COLUMNS)}
        return {"group": group, "series": columns}

    def _row(self, status: ReplicaStatus, emulated: set[str]) -> dict[str, Any]:
        now = self._replicas[status.group, status.replica].row()
        return {**asdict(status), **now, "emulated": status.group in emulated}

    def _of_groups(
        self,
        snapshot: dict[str, Any],
        statuses: Mapping[Key, ReplicaStatus],
        deployments: Sequence[Deployment],
        unix_s: float,
    ) -> Iterable[dict[str, Any]]:
        for group, known in sorted(snapshot["groups"].items()):
            if not known["replicas"]:
                continue
            ours = [one for one in statuses.values() if one.group == group]
            sla: Sla = next(iter(known["replicas"].values()))["batching"].sla
            seen = [
                self._replicas[group, replica_id].attained(one["report"], unix_s)
                for replica_id, one in known["replicas"].items()
            ]
            names = known["replicas"].keys()
            where = next((one for one in deployments if names & set(one.replica_ids)), None)
            yield {
                "group": group,
                "policy": known["policy"],
                "on": known["on"],
                **_place(where, group[:-DIGEST]),
                "replicas": len(ours),
                **_load(ours),
                "sla": sla.model_dump(),
                "attained": attained(seen, sla),
                "stalls": stalls(seen, sla),
                "stall_s": sla.stall_s,
            }

    def _note(self, models: Iterable[dict[str, Any]], unix_s: float) -> None:
        kept: dict[str, deque[tuple[Any, ...]]] = {}
        for one in models:
            points = kept[one["group"]] = self._models.get(one["group"], deque(maxlen=POINTS))
            values = (one[name] for name in MODEL_COLUMNS[1:5])
            points.append((round(unix_s, 3), *values, *one["attained"].values()))
        self._models = kept


def _place(where: Deployment | None, name: str) -> dict[str, Any]:
    """Ray Serve's data on a group; if it has none (yet), the model's name."""
    return {
        "application": where and where.application,
        "model": where.model if where else name,
        "emulated": bool(where and where.emulated),
        "status": where and where.status,
        "wanted": where and where.wanted,
    }


def _load(replicas: Sequence[ReplicaStatus]) -> dict[str, Any]:
    capacities = [one.capacity_per_s for one in replicas if not one.sla_out_of_reach]
    known = [capacity for capacity in capacities if capacity is not None]
    return {
        "running": sum(one.running for one in replicas),
        "waiting": sum(one.waiting for one in replicas),
        "demand_per_s": round(sum(one.arrivals_per_s for one in replicas), 3),
        # Replicas without a value are left out.
        "capacity_per_s": round(sum(known), 3) if known and len(known) == len(capacities) else None,
        "out_of_reach": sum(one.sla_out_of_reach for one in replicas),
    }


def _starting(
    deployments: Sequence[Deployment], statuses: Mapping[Key, ReplicaStatus]
) -> list[dict[str, Any]]:
    """Deployments of which no replica has reported yet."""
    reported = {replica for _, replica in statuses}
    return [
        {"group": None, "replicas": 0, **_place(one, one.model), "running": one.running}
        for one in deployments
        if not reported & set(one.replica_ids)
    ]
