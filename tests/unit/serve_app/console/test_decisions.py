"""The log: what changed between two looks."""

from dataclasses import replace
from typing import Any

import pytest

from serve_app.console.decisions import CONTROL, SET_BY, Decisions
from serve_app.console.deployments import Deployment
from serve_app.snapshot import ReplicaStatus, replicas_of
from tests.builders import batching
from tests.unit.serve_app.snapshots import busy, snapshot_of

(PLAIN,) = replicas_of(snapshot_of((busy(group="g"), batching())))
STATUS = replace(PLAIN, max_running=100, set_by="memory", control="on", late=False)
LLM = Deployment("llm", "BrimfulServer:m", "m", False, "HEALTHY", 2, 2, ())


class Log:
    """Looks at one replica, a second apart."""

    def __init__(self) -> None:
        self.decisions, self.now_s = Decisions(), 0.0

    def look(self, *statuses: ReplicaStatus, deployments: tuple[Deployment, ...] = ()) -> list[str]:
        self.now_s += 1
        known = {(one.group, one.replica): one for one in statuses}
        found = self.decisions.since_last(known, deployments, self.now_s)
        assert {one.unix_s for one in found} <= {self.now_s}
        return [one.text for one in found]

    def then(self, **changes: Any) -> list[str]:
        return self.look(replace(STATUS, **changes))


def watching() -> Log:
    log = Log()
    assert log.look(STATUS) == []  # who was there before the console is no news
    return log


@pytest.mark.parametrize(
    "looks",
    [
        [({}, [])],  # nothing changed
        # A cap that moves is told once it moved by a tenth.
        [
            ({"max_running": 106}, []),
            ({"max_running": 110}, []),
            ({"max_running": 111}, ["cap 100 -> 111, set by KV memory"]),
            ({"max_running": 111}, []),
            ({"max_running": 99}, ["cap 111 -> 99, set by KV memory"]),
        ],
        [({"set_by": "sla"}, ["cap 100 -> 100, set by the SLA"])],
        # Control, reach and silence.
        [
            ({"control": "fallback"}, [CONTROL["fallback"]]),
            ({}, [CONTROL["on"]]),
            ({"sla_out_of_reach": True}, ["the SLA is out of reach"]),
            ({}, ["the SLA is in reach again"]),
            ({"late": True, "reported_s_ago": 7.4}, ["no report for 7 s"]),
            ({"late": True, "reported_s_ago": 8.4}, []),
            ({}, ["reports again"]),
        ],
    ],
    ids=["nothing", "cap", "set by", "control"],
)
def test_what_changed_of_a_replica_is_told(looks):
    log = watching()
    assert [log.then(**changes) for changes, _ in looks] == [told for _, told in looks]
    assert len(SET_BY) == 6


def test_replicas_that_come_and_go_are_told() -> None:
    log = watching()
    other = replace(STATUS, replica="new", set_by="start")
    assert log.look(STATUS, other) == [
        "joined with a cap of 100, set by too little was measured yet"
    ]
    assert log.look(other) == ["gone: no report for three leases"]
    assert log.look(other) == []


def test_how_many_replicas_are_wanted_is_told() -> None:
    log = Log()
    log.look(deployments=(LLM,))
    more = replace(LLM, wanted=5)
    assert log.look(deployments=(more,)) == ["BrimfulServer:m of llm: 2 -> 5 replicas wanted"]
    assert log.look(deployments=(more,)) == []
    assert log.look() == []
    assert log.look(deployments=(LLM,)) == []  # deployed anew
