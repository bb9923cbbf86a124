"""The main job through the real stack: HTTP, HAProxy, Ray Serve, vLLM, the controller."""

import asyncio
import re

import pytest
import ray

from controller.metrics import MAX_RUNNING, OWN_ERRORS
from replicas.server.vllm_engine import gpus_of
from serve_app.demo.client import Ask, prompts, send
from tests.ray.conftest import base_url
from tests.ray.control import metrics_text, replicas, until
from tests.scrapes import ALWAYS, ROUTED, missing, scraped, wrong

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("two_apps")]

BURST = [Ask(p, 16 + i % 48, at_s=i / 30) for i, p in enumerate(prompts(160, (8, 80), seed=3))]


async def test_both_replicas_are_seen_and_their_caps_leave_the_start_value():
    caps: dict[str, set[int]] = {}

    async def watch() -> None:
        while True:
            for replica_id, replica in replicas("paper").items():
                caps.setdefault(replica_id, set()).add(replica["limits"].max_running)
            await asyncio.sleep(0.2)

    watching = asyncio.create_task(watch())
    answers = await send(base_url("paper"), "tiny-paper", BURST)
    watching.cancel()
    assert [a.error or a.status for a in answers if not a.whole] == []
    assert [a.tokens for a in answers] == [ask.max_tokens for ask in BURST]
    assert len(caps) == 2
    assert all(min(seen) < 64 for seen in caps.values()), caps


def test_the_card_of_a_placement_group_is_named_by_ray(cluster):
    group = ray.util.placement_group([{"GPU": 1}])
    ray.get(group.ready())
    try:
        assert gpus_of(group) == "0"
    finally:
        ray.util.remove_placement_group(group)


async def test_the_prometheus_export_is_what_the_docs_list():
    await until(f"metrics {ALWAYS | ROUTED}", lambda: not missing(metrics_text(), ALWAYS | ROUTED))
    text = metrics_text()
    assert wrong(text) == []
    assert OWN_ERRORS.exported not in scraped(text), "an error of our own was outlived"
    caps = [one for one in scraped(text)[MAX_RUNNING.exported] if one["application"] == "paper"]
    assert len({one["replica"] for one in caps}) == 2, caps


# --- requests over direct streaming go by the room that replicas publish

ROUTED_ASKS = [Ask(p, 24, at_s=i / 20) for i, p in enumerate(prompts(60, (8, 80), seed=9))]


def routed() -> dict[str, float]:
    """How many requests of ``paper`` were routed so far, by how that was decided."""
    found: dict[str, float] = {}
    for line in metrics_text().splitlines():
        outcome = re.search(r'outcome="(\w+)"', line)
        if line.startswith("ray_brimful_routed") and 'application="paper"' in line and outcome:
            found[outcome[1]] = found.get(outcome[1], 0) + float(line.rpartition(" ")[2])
    return found


def finished() -> dict[str, int]:
    return {name: one["report"].finished for name, one in replicas("paper").items()}


async def test_real_requests_spread_over_both_replicas_by_the_room_they_publish() -> None:
    before, routed_before = finished(), routed()
    answers = await send(base_url("paper"), "tiny-paper", ROUTED_ASKS)
    assert [a.error or a.status for a in answers if not a.whole] == []

    def all_counted() -> bool:
        return sum(finished().values()) - sum(before.values()) >= len(ROUTED_ASKS)

    await until("the last requests in the reports", all_counted)
    shares = [count - before[name] for name, count in finished().items()]
    assert min(shares) >= len(ROUTED_ASKS) / 4, shares

    def exported() -> bool:
        now = routed()
        return sum(now.values()) - sum(routed_before.values()) >= len(ROUTED_ASKS)

    await until("the router's own count of its decisions", exported)
    # Figures of both replicas were there and fresh; a first few may have come before them.
    by_room = routed().get("room", 0) - routed_before.get("room", 0)
    assert by_room >= 0.9 * len(ROUTED_ASKS), routed()
