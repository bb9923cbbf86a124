"""The main job through the real stack: HTTP, HAProxy, Ray Serve, vLLM, the controller."""

import asyncio
import json
import re
import sys

import aiohttp
import psutil
import pytest
import ray
import requests

from controller.metrics import MAX_RUNNING, OWN_ERRORS, TOKENS
from replicas.server.vllm_engine import gpus_of
from serve_app.demo.client import Ask, prompts, send
from tests.monitoring.shipped import plain, queries
from tests.ray.conftest import base_url
from tests.ray.control import metrics_text, replicas, snapshot, until
from tests.ray.prometheus import answer, prometheus, rule_health
from tests.scrapes import ALWAYS, ROUTED, missing, scraped, wrong

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("two_apps")]

BURST = [Ask(p, 16 + i % 48, at_s=i / 30) for i, p in enumerate(prompts(160, (8, 80), seed=3))]
QUESTIONS = [Ask(p, 24) for p in prompts(12, (4, 30), seed=5)]


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


async def test_the_steps_of_a_replica_are_recorded_while_it_serves(cluster, tmp_path):
    out = tmp_path / "steps.json"
    (group,) = (name for name in snapshot()["groups"] if name.startswith("tiny-static-"))
    command = ["record", "--seconds", "4", "--out", str(out), "--group", group]
    recording = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "serve_app.cli", *command, "--address", cluster.gcs_address),
        stderr=asyncio.subprocess.PIPE,
    )
    answers = []
    while recording.returncode is None:
        answers += await send(base_url("static"), "tiny-static", BURST[:40])
    said = (await recording.communicate())[1].decode()
    assert recording.returncode == 0, said
    (replica_id,) = replicas("static")
    assert f"recording replica {replica_id}\n" in said
    assert [a.error or a.status for a in answers if not a.whole] == []
    made = json.loads(out.read_text())["recordings"]["tiny-static"]
    assert {"ray", "torch", "vllm"} <= made["versions"].keys()
    assert made["max_num_seqs"] == 64
    steps = made["steps"]
    assert 0 < sum(steps["duration_us"]) < 5e6
    assert 0 < sum(steps["decodes"]) <= sum(a.tokens for a in answers)


async def test_answers_that_do_not_stream_are_complete_too():
    answers = await send(base_url("paper"), "tiny-paper", BURST[:40], stream=False)
    assert [a.status for a in answers] == [200] * 40
    assert [a.tokens for a in answers] == [ask.max_tokens for ask in BURST[:40]]


async def test_greedy_answers_are_the_same_under_static_and_paper():
    under_paper = await send(base_url("paper"), "tiny-paper", QUESTIONS)
    under_static = await send(base_url("static"), "tiny-static", QUESTIONS)
    assert all(a.whole for a in under_paper + under_static)
    assert [a.text for a in under_paper] == [a.text for a in under_static]


async def test_chat_streams_through_the_openai_path():
    body = {
        "model": "tiny-paper",
        "messages": [{"role": "user", "content": "a river"}],
        "max_tokens": 8,
        "stream": True,
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{base_url('paper')}/chat/completions", json=body) as response,
    ):
        assert response.status == 200
        assert (await response.text()).rstrip().endswith("data: [DONE]")


def test_the_model_runs_in_enginecores_own_process():
    # Below the raylet: an engine of another test of this run may still have a worker.
    (raylet,) = (one for one in psutil.Process().children(True) if one.name() == "raylet")
    titles = [title for process in raylet.children(True) for title in _title(process)]
    assert sum("VLLM::EngineCore" in title for title in titles) >= 3  # of two applications
    assert [title for title in titles if "VLLM::Worker" in title] == []
    # Usage statistics are off here: nothing is collected for them either.
    assert [title for title in titles if "TelemetryAgent" in title] == []


def _title(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()[:1]
    except psutil.NoSuchProcess:
        return []


def test_the_card_of_a_placement_group_is_named_by_ray(cluster):
    group = ray.util.placement_group([{"GPU": 1}])
    ray.get(group.ready())
    try:
        assert gpus_of(group) == "0"
    finally:
        ray.util.remove_placement_group(group)


def test_static_keeps_the_cap_of_the_start():
    limits = [r["limits"] for r in replicas("static").values()]
    assert [(one.max_running, one.reason) for one in limits] == [(64, "static")]


async def test_the_prometheus_export_is_what_the_docs_list():
    await until(f"metrics {ALWAYS | ROUTED}", lambda: not missing(metrics_text(), ALWAYS | ROUTED))
    text = metrics_text()
    assert wrong(text) == []
    assert OWN_ERRORS.exported not in scraped(text), "an error of our own was outlived"
    caps = [one for one in scraped(text)[MAX_RUNNING.exported] if one["application"] == "paper"]
    assert len({one["replica"] for one in caps}) == 2, caps


@pytest.mark.prometheus
async def test_a_real_prometheus_answers_every_panel_and_evaluates_every_alert(tmp_path):
    with prometheus(tmp_path, ray.nodes()[0]["MetricsExportPort"]) as url:

        def scraped_twice() -> bool:
            return bool(answer(url, f"rate({TOKENS.exported}[1m])"))

        await until("two scrapes", scraped_twice)
        shown = {query for query in queries() if answer(url, plain(query, ".*"))}
        # Nothing here scales, refuses, or has classes or an SLA of the first token.
        assert len(shown) >= 0.6 * len(queries()), set(queries()) - shown
        await until("the alerts evaluated", lambda: set(rule_health(url)) == {"ok"})


MALFORMED = '{"model": "tiny-paper", '


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({"prompt": "a river " * 600}, 400, "context length"),
        ({"model": "nobody"}, 404, "nobody"),
        ({"max_tokens": -1}, 400, "max_tokens"),
        (MALFORMED, 400, ""),
    ],
    ids=["long", "model", "tokens", "json"],
)
def test_bad_requests_get_their_status_and_an_openai_error(change, status, says):
    body = {"model": "tiny-paper", "prompt": "a river", "max_tokens": 4}
    text = change if change == MALFORMED else json.dumps({**body, **change})
    headers = {"content-type": "application/json"}
    url = f"{base_url('paper')}/completions"
    response = requests.post(url, data=text, headers=headers, timeout=60)
    assert response.status_code == status
    error = response.json()["error"]
    assert says in error["message"]
    assert change == MALFORMED or (error["code"] == status and error["type"])


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
