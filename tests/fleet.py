"""Replicas and their controllers without Ray and without engines, exchange by exchange."""

from dataclasses import dataclass
from typing import Any

from controller.config import BatchingConfig
from controller.errors import BrimfulError
from controller.fleet.actor import BatchController
from controller.records import BatchLimits, ReplicaReport, from_wire, to_wire
from replicas.engine.governor import Governor
from tests.builders import batching, governor, state


@dataclass
class Member:
    """One replica: its governor, and the controller that it reports to."""

    name: str
    group: str
    config: BatchingConfig
    governor: Governor
    version: str
    reports_arrive: bool = True

    def report(self, now_s: float) -> ReplicaReport:
        return self.governor.report(state(), now_s, self.name, self.group)


class Fleet:
    """Controllers by version; replicas by name."""

    def __init__(self, *versions: str) -> None:
        self.now_s = 0.0
        self.members: dict[str, Member] = {}
        self.controllers: dict[str, BatchController | None] = {}
        for version in versions or ("v1",):
            self.restart(version)

    def restart(self, version: str = "v1") -> None:
        """The controller dies and starts again, and knows nothing."""
        self.controllers[version] = BatchController()

    def join(self, name: str, group: str = "g", version: str = "v1", **block: Any) -> Member:
        """One replica more; it has not reported yet."""
        config = batching(**block)
        made = governor(config, now_s=self.now_s, group=group)
        self.members[name] = Member(name, group, config, made, version)
        return self.members[name]

    def exchange(self, name: str) -> None:
        """One replica reports, and applies the answer."""
        member = self.members[name]
        controller = self.controllers[member.version]
        if controller is None or not member.reports_arrive:
            return
        wire = to_wire(member.report(self.now_s))
        answer = controller.exchange(wire, member.config.model_dump())
        member.governor.apply(from_wire(BatchLimits, answer), self.now_s)

    def period(self, seconds: float = 0.5) -> None:
        """Every replica reports once."""
        for name in self.members:
            self.exchange(name)
        self.now_s += seconds

    def calls(self) -> list[Any]:
        """The controllers as ``brimful enforce`` calls them."""

        def caller(version: str) -> Any:
            def call(method: str, *args: Any) -> Any:
                controller = self.controllers[version]
                if controller is None:
                    raise BrimfulError("it is gone")
                return getattr(controller, method)(*args)

            return call

        return [caller(version) for version in self.controllers]

    def enforced(self) -> dict[str, bool]:
        """By replica: whether its limits are applied."""
        return {name: member.governor.enforced for name, member in self.members.items()}
