"""Replicas and their controller without Ray and without engines, exchange by exchange."""

from dataclasses import dataclass
from typing import Any

from controller.config import BatchingConfig
from controller.fleet.actor import BatchController
from controller.records import BatchLimits, ReplicaReport, from_wire, to_wire
from replicas.engine.governor import Governor
from serve_app.enforce import UnansweredError
from tests.builders import batching, governor, state


@dataclass
class Member:
    """One replica: its governor, and the controller that it reports to."""

    name: str
    group: str
    config: BatchingConfig
    governor: Governor
    reports_arrive: bool = True

    def report(self, now_s: float) -> ReplicaReport:
        return self.governor.report(state(), now_s, self.name, self.group)


class Fleet:
    """A controller; replicas by name."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.members: dict[str, Member] = {}
        self.restart()

    def restart(self) -> None:
        """The controller dies and starts again, and knows nothing."""
        self.controller: BatchController | None = BatchController()

    def join(self, name: str, group: str) -> None:
        """One replica more; it has not reported yet."""
        config = batching()
        made = governor(config, now_s=self.now_s, group=group)
        self.members[name] = Member(name, group, config, made)

    def exchange(self, name: str) -> None:
        """One replica reports, and applies the answer."""
        member = self.members[name]
        if self.controller is None or not member.reports_arrive:
            return
        wire = to_wire(member.report(self.now_s))
        answer = self.controller.exchange(wire, member.config.model_dump())
        member.governor.apply(from_wire(BatchLimits, answer), self.now_s)

    def period(self, seconds: float = 0.5) -> None:
        """Every replica reports once."""
        for name in self.members:
            self.exchange(name)
        self.now_s += seconds

    def calls(self) -> dict[str, Any]:
        """The controller as ``brimful enforce`` calls it."""

        def call(method: str, *args: Any) -> Any:
            if self.controller is None:
                raise UnansweredError("it is gone")
            return getattr(self.controller, method)(*args)

        return {"v1": call}

    def enforced(self) -> dict[str, bool]:
        """By replica: whether its limits are applied."""
        return {name: member.governor.enforced for name, member in self.members.items()}
