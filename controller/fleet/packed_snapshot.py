"""A cheap snapshot of the controller, for readers once a second.

Pickling a fleet's records takes a tenth of a millisecond per replica, in which no replica gets its
answer. So numbers go out as flat tuples, which are made and pickled in C, and the reader makes
records from them.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any, get_type_hints

from controller.records import BatchLimits, PackedRows, ReplicaReport

# As large as all the rest and read by no one: left out, with these values instead.
LEFT_OUT: dict[Any, dict[str, Any]] = {
    ReplicaReport: {
        "rows": PackedRows(),
        "lengths_seen": b"",
        "batch": b"",
        "queue": b"",
        "slos": (),
        "memory": {},
        "switches": (),
    },
    BatchLimits: {"memory": {}, "switches": ()},
}


def _paths(kind: Any, above: str = "") -> Iterator[str]:
    for name, inner in _kept(kind):
        if is_dataclass(inner):
            yield from _paths(inner, f"{above}{name}.")
        else:
            yield above + name


def _kept(kind: Any) -> list[tuple[str, Any]]:
    hints, skipped = get_type_hints(kind), LEFT_OUT.get(kind, {})
    return [(f.name, hints[f.name]) for f in fields(kind) if f.name not in skipped]


_KEPT = {kind: _kept(kind) for kind in LEFT_OUT}
_REPORT, _LIMITS = (attrgetter(*_paths(kind)) for kind in (ReplicaReport, BatchLimits))


def packed_snapshot_of(snapshot: dict[str, Any]) -> dict[str, Any]:
    """A ``BatchController.snapshot`` as plain tuples; ``opened`` restores the records."""
    configs: list[Any] = []
    number: dict[int, int] = {}

    def config(batching: Any) -> int:
        if id(batching) not in number:
            number[id(batching)] = len(configs)
            configs.append(batching)
        return number[id(batching)]

    groups = {
        name: {
            "policy": known["policy"],
            "on": known["on"],
            "replicas": [
                (
                    replica_id,
                    one["age_s"],
                    config(one["batching"]),
                    _REPORT(one["report"]),
                    _LIMITS(one["limits"]),
                )
                for replica_id, one in known["replicas"].items()
            ],
        }
        for name, known in snapshot["groups"].items()
    }
    return {**snapshot, "groups": groups, "configs": configs}


def opened(glance: dict[str, Any]) -> dict[str, Any]:
    """The snapshot that ``packed_snapshot_of`` was given, with records.

    Without a group's ``pool`` and the fields in ``LEFT_OUT``.
    """
    configs = glance["configs"]
    groups = {
        name: {
            "policy": known["policy"],
            "on": known["on"],
            "replicas": {
                replica_id: {
                    "age_s": age_s,
                    "batching": configs[config],
                    "report": _record(ReplicaReport, iter(report)),
                    "limits": _record(BatchLimits, iter(limits)),
                }
                for replica_id, age_s, config, report, limits in known["replicas"]
            },
        }
        for name, known in glance["groups"].items()
    }
    return {**{k: v for k, v in glance.items() if k != "configs"}, "groups": groups}


def _record(kind: Any, values: Iterator[Any]) -> Any:
    if kind not in _KEPT:
        _KEPT[kind] = _kept(kind)
    given = {
        name: _record(inner, values) if is_dataclass(inner) else next(values)
        for name, inner in _KEPT[kind]
    }
    return kind(**given, **LEFT_OUT.get(kind, {}))
