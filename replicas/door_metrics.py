"""What the door did, in Ray's Prometheus export: by the names of keys, never by the keys."""

from ray.serve.metrics import Counter


class DoorMetrics:
    """One counter, told of each request."""

    def __init__(self) -> None:
        self._requests = Counter(
            "brimful_door_requests",
            "Requests at the door, by the name of their key and by what became of them there.",
            ("key", "outcome"),
        )

    def count(self, key: str, outcome: str) -> None:
        """One request more."""
        self._requests.inc(1, {"key": key, "outcome": outcome})
