"""What came of switching control: which replicas confirmed it, and that in lines."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replica:
    """What one replica made of the switch.

    Args:
        confirmed: it goes by this switch, or by a newer one.
        enforced: whether limits are applied there now.
        configured: whether they are while control is on (``batching.enforce``).
        reported_s_ago: since its last report.
    """

    group: str
    replica: str
    confirmed: bool
    enforced: bool
    configured: bool
    reported_s_ago: float


@dataclass(frozen=True, slots=True)
class Refused:
    """One replica whose reports the controller refuses: it gets no switch."""

    group: str
    replica: str
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a switch.

    Args:
        replicas: those that it is for, and whose reports are taken.
        unanswered: controllers that were not reached, by version, and why.
        refused: those that it is for, and whose reports are not taken.
    """

    enforce: bool
    group: str | None
    replicas: tuple[Replica, ...]
    unanswered: dict[str, str]
    refused: tuple[Refused, ...] = ()

    @property
    def confirmed(self) -> bool:
        """Whether all replicas of all controllers go by it."""
        return not (self.unanswered or self.refused) and all(r.confirmed for r in self.replicas)


def lines_of(outcome: Outcome, wait_s: float) -> Iterator[str]:
    """What came of it, in lines."""
    where = "all groups, and those that come later" if outcome.group is None else outcome.group
    yield f"Control is {'on' if outcome.enforce else 'off'} for {where}."
    if not outcome.replicas and not outcome.refused:
        yield "No replica is there now."
    by_group = Counter(r.group for r in outcome.replicas)
    by_group.update(r.group for r in outcome.refused)
    for group, count in sorted(by_group.items()):
        ours = [r for r in outcome.replicas if r.group == group]
        yield f"  {group}: {sum(r.confirmed for r in ours)} of {count} replicas confirmed"
    if late := [r for r in outcome.replicas if not r.confirmed]:
        yield f"Not confirmed within {wait_s:g} s:"
        for r in late:
            yield f"  {r.replica} of {r.group}, last report {r.reported_s_ago:.1f} s ago"
        yield "Each of them takes the switch over as soon as it reaches the controller."
    if outcome.refused:
        yield "Not switched, since the controller refuses their reports; they decide by themselves:"
        for one in outcome.refused:
            yield f"  {one.replica} of {one.group}: {one.reason}"
    for version, why in outcome.unanswered.items():
        yield f"Not reached: the batch controller {version} and its replicas ({why})."
    if outcome.unanswered:
        yield "Run the command again."
