"""Classes, requests and an admission for the tests of admission."""

from typing import Any

from controller.classes import parse_admission, parse_classes
from replicas.admission.admission import Admission
from replicas.admission.asked import Asked

CLASSES = parse_classes(
    {
        "gold": {"ttft_ms": 1000, "priority": 0},
        "silver": {"ttft_ms": 1000, "priority": 10, "sheddable": True, "default": True},
        "batch": {"ttft_ms": 1000, "priority": 20, "sheddable": True},
    }
)


def admission(now_s: float = 0.0, slots: int = 10, **config: Any) -> Admission:
    """Admission before an engine with so many slots."""
    return Admission(CLASSES, parse_admission(config), slots, now_s)


def asked(name: str = "silver", arrived_s: float = 0.0, **other: Any) -> Asked:
    """A request of a class, with what the class brings."""
    one = CLASSES.by_name[name]
    plain = {
        "priority": one.priority,
        "deadline_s": one.deadline_s,
        "timeout_s": one.queue_timeout_s,
        "sheddable": one.sheddable,
    }
    return Asked(name, True, arrived_s=arrived_s, **{**plain, **other})
