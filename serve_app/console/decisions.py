"""What changed between two reads of the fleet, in sentences: the console's log."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from serve_app.console.deployments import Deployment
from serve_app.snapshot import Control, ReplicaStatus

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
