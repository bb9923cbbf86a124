"""Requests over direct streaming go by the room that replicas publish."""

import re

import pytest
import ray
import requests

from serve_app.demo.client import Ask, prompts, send
from tests.ray.conftest import base_url
from tests.ray.control import replicas, until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("two_apps")]

ASKS = [Ask(p, 24, at_s=i / 20) for i, p in enumerate(prompts(60, (8, 80), seed=9))]


def routed() -> dict[str, float]:
    """How many requests of ``paper`` were routed so far, by how that was decided."""
    port = ray.nodes()[0]["MetricsExportPort"]
    text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
    found: dict[str, float] = {}
    for line in text.splitlines():
        outcome = re.search(r'outcome="(\w+)"', line)
        if line.startswith("ray_brimful_routed") and 'application="paper"' in line and outcome:
            found[outcome[1]] = found.get(outcome[1], 0) + float(line.rpartition(" ")[2])
    return found


def finished() -> dict[str, int]:
    return {name: one["report"].finished for name, one in replicas("paper").items()}


async def test_real_requests_spread_over_both_replicas_by_the_room_they_publish() -> None:
    before, routed_before = finished(), routed()
    answers = await send(base_url("paper"), "tiny-paper", ASKS)
    assert [a.error or a.status for a in answers if not a.whole] == []

    def all_counted() -> bool:
        return sum(finished().values()) - sum(before.values()) >= len(ASKS)

    await until("the last requests in the reports", all_counted)
    shares = [count - before[name] for name, count in finished().items()]
    assert min(shares) >= len(ASKS) / 4, shares

    def exported() -> bool:
        now = routed()
        return sum(now.values()) - sum(routed_before.values()) >= len(ASKS)

    await until("the router's own count of its decisions", exported)
    # Figures of both replicas were there and fresh; a first few may have come before them.
    by_room = routed().get("room", 0) - routed_before.get("room", 0)
    assert by_room >= 0.9 * len(ASKS), routed()
