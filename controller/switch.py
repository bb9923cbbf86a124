"""Control that is switched off and on while replicas run: which switches hold, and which is newest.

The controller and every replica keep the same small table and send all of it with each exchange;
merging two tables keeps the newest of each scope. So the order in which tables meet does
not matter, and a controller or replica that starts anew has the newest after one exchange.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Switch:
    """Control was switched off or on.

    Args:
        epoch_ms: says which of two is newer: the Unix time of the switch by the controller's clock,
            ms, or one more than the newest that the controller knew, if its clock is behind.
        enforce: False: limits are computed and reported, and vLLM runs at its own; True: as the
            configuration says (``batching.enforce``).
        group: the group that it is for; None: all of them, those that come later too.
    """

    epoch_ms: int
    enforce: bool
    group: str | None = None


Switches = tuple[Switch, ...]
"""One for each scope, the oldest first; none for a group that is older than the one for all."""

MOST_GROUPS = 64  # whose switches are known: a group is named anew with each changed entry


def merged(*tables: Iterable[Switch]) -> Switches:
    """The newest switch of each scope. The order of the tables does not matter.

    The groups that were switched last stay, even if they are gone: a group's name changes with
    its entry, and an earlier name may come back.
    """
    newest_of: dict[str | None, Switch] = {}
    for switch in (switch for table in tables for switch in table):
        last = newest_of.get(switch.group)
        if last is None or _rank(switch) > _rank(last):
            newest_of[switch.group] = switch
    for_all = newest_of.get(None)
    since_ms = for_all.epoch_ms if for_all else 0
    kept = (switch for switch in newest_of.values() if switch.epoch_ms >= since_ms)
    ordered = sorted(kept, key=lambda switch: (switch.epoch_ms, switch.group or ""))
    groups = [switch for switch in ordered if switch is not for_all]
    forgotten = set(groups[:-MOST_GROUPS])
    return tuple(switch for switch in ordered if switch not in forgotten)


def newest(switches: Iterable[Switch], group: str) -> Switch | None:
    """The switch that holds for ``group``; None: it was never switched."""
    of_group = (switch for switch in switches if switch.group in (None, group))
    return max(of_group, key=_rank, default=None)


def is_on(switches: Iterable[Switch], group: str) -> bool:
    """Whether the group is controlled as it is configured."""
    switch = newest(switches, group)
    return switch is None or switch.enforce


def next_switch(
    switches: Iterable[Switch], *, enforce: bool, group: str | None, unix_s: float
) -> Switch:
    """A switch that is newer than all of ``switches``, whatever the clock says."""
    known_ms = max((switch.epoch_ms for switch in switches), default=0)
    return Switch(max(known_ms + 1, int(unix_s * 1000)), enforce, group)


def _rank(switch: Switch) -> tuple[int, bool]:
    # Of two at the same moment (two controllers), off: it is the one that does no harm.
    return switch.epoch_ms, not switch.enforce
