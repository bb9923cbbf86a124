"""What replicas whose engines died tell: counted once, and shown for an hour."""

from collections import Counter
from typing import Any

from controller.fleet.engine_deaths import EngineDeaths


def test_what_a_replica_tells_twice_is_counted_once_and_shown_for_an_hour() -> None:
    counts: Counter[Any] = Counter()

    def count(name: str) -> Any:
        def add(value: float, labels: dict[str, str]) -> None:
            counts[name, labels.get("outcome")] += value

        return add

    deaths = EngineDeaths(count("died"), count("became"), count("gap_s"))
    told = {"replica": "r", "group": "g", "outcomes": {"moving": 3}, "gap_s": 0.0}
    deaths.told(told, 10.0)
    last = {**told, "outcomes": {"moving": 0, "moved": 2, "cannot": 1}, "gap_s": 0.5}
    deaths.told(last, 20.0)
    deaths.told(last, 21.0)
    assert counts == {
        ("died", None): 1,
        ("became", "moved"): 2,
        ("became", "cannot"): 1,
        ("gap_s", None): 0.5,
    }
    assert deaths.snapshot(30.0) == [{**last, "died_s_ago": 20.0}]
    assert deaths.snapshot(3610.0) == []
