"""What the door did, in Ray's Prometheus export: by the names of keys, never by the keys."""

from ray.serve.metrics import Counter

from controller.metrics import DOOR


class DoorMetrics:
    """One counter, told of each request."""

    def __init__(self) -> None:
        self._requests = Counter(*DOOR.args)

    def count(self, key: str, outcome: str) -> None:
        """One request more."""
        self._requests.inc(1, {"key": key, "outcome": outcome})
