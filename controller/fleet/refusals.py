"""Replicas whose reports were refused, for display: bounded in number and time. Pure."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

MOST = 100  # replicas; the newest refusals stay
KEPT_S = 180.0  # three of the longest leases: a replica without a report for this long is gone
LONGEST = 300  # characters of a reason, and of a name


@dataclass(frozen=True, slots=True)
class Refusal:
    """The last report of a replica that was refused, and why."""

    group: str
    replica: str
    reason: str
    refused_s: float


class Refusals:
    """The last refusal of each replica, until one of its reports is accepted."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[str, str], Refusal] = OrderedDict()

    def refused(self, report: Any, error: Exception, now_s: float) -> None:
        """Count a refused report, which may hold anything."""
        told = report if isinstance(report, dict) else {}
        group, replica = (str(told.get(key, "?"))[:LONGEST] for key in ("group", "replica_id"))
        self._last.pop((group, replica), None)
        reason = " ".join(str(error).split())[:LONGEST] or type(error).__name__
        self._last[group, replica] = Refusal(group, replica, reason, now_s)
        if len(self._last) > MOST:
            self._last.popitem(last=False)

    def accepted(self, group: str, replica: str) -> None:
        """Forget the refusal of a replica whose report was accepted."""
        self._last.pop((group, replica), None)

    def snapshot(self, now_s: float) -> list[dict[str, Any]]:
        """By group and replica: ``{"group", "replica", "reason", "refused_s_ago"}`` each."""
        for key, one in list(self._last.items()):
            if one.refused_s < now_s - KEPT_S:
                del self._last[key]
        return [
            {
                "group": one.group,
                "replica": one.replica,
                "reason": one.reason,
                "refused_s_ago": now_s - one.refused_s,
            }
            for _, one in sorted(self._last.items())
        ]
