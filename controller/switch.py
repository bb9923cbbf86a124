"""Switching control off and on while replicas run: which switches hold, and which is newest.

The controller and every replica have copies of a small table and send it whole with each sync.
Merging two tables keeps the newest switch of each scope. So the order of merges does not matter,
and a new controller or replica has the newest after one sync.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Switch:
    """Control was switched off or on.

    Args:
        epoch_ms: tells which of two is newer: the Unix time by the controller's clock, ms, or one
            more than the newest known switch if the clock is behind.
        enforce: False: limits are computed and reported, and not applied; True: as configured
            (``batching.enforce``).
        group: the switched group; None: all groups, later ones included.
    """

    epoch_ms: int
    enforce: bool
    group: str | None = None


Switches = tuple[Switch, ...]
"""One per scope, oldest first; no group's switch is older than the one for all."""

MOST_GROUPS = 64  # that are remembered: a group is renamed with each change of its entry


def merged(*tables: Iterable[Switch]) -> Switches:
    """The newest switch of each scope. The order of the tables does not matter.

    The groups that were switched last are kept, even if they are gone: a group's name changes with
    its entry, and an earlier name may return.
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
    """Whether control of the group is as configured."""
    switch = newest(switches, group)
    return switch is None or switch.enforce


def next_switch(
    switches: Iterable[Switch], *, enforce: bool, group: str | None, unix_s: float
) -> Switch:
    """A switch that is newer than all of ``switches``, even if the clock is behind."""
    known_ms = max((switch.epoch_ms for switch in switches), default=0)
    return Switch(max(known_ms + 1, int(unix_s * 1000)), enforce, group)


def _rank(switch: Switch) -> tuple[int, bool]:
    # Of two at one time (two controllers), off wins: it does no harm.
    return switch.epoch_ms, not switch.enforce
