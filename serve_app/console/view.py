"""The data of the console's page: plain JSON, from a snapshot and Ray Serve's deployments. Pure.

Everything that users name (models, groups, applications) is text in it, and the page puts it on the
screen as text.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from controller.config import Sla
from serve_app.config import EMULATED_SERVER, SERVER
from serve_app.console.series import ATTAINED_S, POINTS, Series, attained, stalls
from serve_app.explain import explanations
from serve_app.pd import NAME_PREFIX
from serve_app.snapshot import Control, ReplicaStatus, refused_lines, replicas_of, switched_off

PLAIN, EMULATED = (f"{path.rpartition(':')[2]}:" for path in (SERVER, EMULATED_SERVER))
OURS = (PLAIN, EMULATED, *NAME_PREFIX.values())
LESS_OR_MORE = 0.1  # a cap that moved by less than this share is not logged
SET_BY = {
    "static": "the static setting",
    "memory": "KV memory",
    "sla": "the SLA",
    "bound": "max_running or the engine's size",
    "load": "no request had to wait",
    "start": "too little was measured yet",
}
CONTROL: dict[Control, str] = {
    "on": "goes by the controller's limits",
    "fallback": "decides from its own measurements: no limits reached it in time",
    "off": "runs at vLLM's own limits: control is switched off",
    "advice": "runs at vLLM's own limits: batching.enforce is false",
}
Key = tuple[str, str]
LOG_LINES = 100
MODEL_COLUMNS = ("unix_s", "demand_per_s", "capacity_per_s", "replicas", "wanted", "itl", "ttft")
DIGEST = 9  # of a group's name: the dash and eight digits after the model's name


@dataclass(frozen=True, slots=True)
class Deployment:
    """One deployment of ours, as Ray Serve has it.

    Args:
        model: the model's name, as Ray Serve spells it in the name of a deployment.
        emulated: its accelerator is emulated.
        running, wanted: replicas; the present number, and the number to reach.
        replica_ids: all present ones, also if they start or stop.
    """

    application: str
    name: str
    model: str
    emulated: bool
    status: str
    running: int
    wanted: int
    replica_ids: tuple[str, ...]


def deployments_of(details: Mapping[str, Any]) -> list[Deployment]:
    """Our deployments in the answer of Ray Serve's REST interface, in its order."""
    return [
        _deployment(application, one)
        for application, known in details["applications"].items()
        for one in known["deployments"].values()
        if one["name"].startswith(OURS)
    ]


def _deployment(application: str, details: Mapping[str, Any]) -> Deployment:
    name, replicas = details["name"], details["replicas"]
    return Deployment(
        application=application,
        name=name,
        model=name.partition(":")[2],
        emulated=name.startswith(EMULATED),
        status=str.__str__(details["status"]),  # of an enum: its value
        running=sum(one["state"] == "RUNNING" for one in replicas),
        wanted=details["target_num_replicas"],
        replica_ids=tuple(one["replica_id"] for one in replicas),
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the log; ``replica`` is empty if it is about all of a deployment."""

    unix_s: float
    group: str
    replica: str
    text: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Decisions:
    """Compares each read with the last line about a replica, so that slow drifts are logged too."""

    def __init__(self) -> None:
        self._told: dict[Key, ReplicaStatus] = {}
        self._wanted: dict[Key, int] = {}
        self._first = True

    def since_last(
        self,
        replicas: Mapping[Key, ReplicaStatus],
        deployments: Sequence[Deployment],
        unix_s: float,
    ) -> list[Decision]:
        """The lines of one read, deployments first; the first read has none.

        Args:
            replicas: by group and name.
        """
        found = [*self._deployments(deployments, unix_s), *self._replicas(replicas, unix_s)]
        first, self._first = self._first, False
        return [] if first else found

    def _deployments(self, known: Sequence[Deployment], unix_s: float) -> Iterator[Decision]:
        wanted = {(one.application, one.name): one.wanted for one in known}
        for (application, name), count in wanted.items():
            before = self._wanted.get((application, name))
            if before is not None and count != before:
                text = f"{name} of {application}: {before} -> {count} replicas wanted"
                yield Decision(unix_s, application, "", text)
        self._wanted = wanted

    def _replicas(self, now: Mapping[Key, ReplicaStatus], unix_s: float) -> Iterator[Decision]:
        for key, status in now.items():
            told = self._told.get(key)
            lines = [_joined(status)] if told is None else list(_changes(told, status))
            if lines:
                self._told[key] = status
            for text in lines:
                yield Decision(unix_s, *key, text)
        for key in self._told.keys() - now.keys():
            del self._told[key]
            yield Decision(unix_s, *key, "gone: no report for three leases")


def _joined(status: ReplicaStatus) -> str:
    return f"joined with a cap of {status.max_running}, set by {SET_BY[status.set_by]}"


def _changes(told: ReplicaStatus, now: ReplicaStatus) -> Iterator[str]:
    if now.control != told.control:
        yield CONTROL[now.control]
    if now.sla_out_of_reach != told.sla_out_of_reach:
        yield "the SLA is out of reach" if now.sla_out_of_reach else "the SLA is in reach again"
    if now.late != told.late:
        yield f"no report for {now.reported_s_ago:.0f} s" if now.late else "reports again"
    moved = abs(now.max_running - told.max_running)
    if now.set_by != told.set_by or moved > LESS_OR_MORE * told.max_running:
        yield f"cap {told.max_running} -> {now.max_running}, set by {SET_BY[now.set_by]}"


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
