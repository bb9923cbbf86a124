"""A changed ``user_config`` reaches running engines, a changed entry replaces them."""

import asyncio
from collections.abc import Callable

import pytest

from serve_app.demo.client import Answer, Ask, prompts, send
from serve_app.launch.local_cluster import LocalCluster
from tests.ray.applications import MAX_NUM_SEQS
from tests.ray.conftest import base_url, paper_and_static
from tests.ray.control import replica_actors, replicas, until
from tests.serve_configs import put

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("two_apps")]

ASKS = [Ask(p, 48, at_s=i / 10) for i, p in enumerate(prompts(20, (8, 40), seed=4))]


async def under_load(what: Callable[[], None]) -> list[Answer]:
    """The answers to requests that came before, while and after ``what`` was done."""
    done, answers = asyncio.Event(), list[Answer]()

    async def load() -> None:
        last = False
        while not last:
            last = done.is_set()
            answers.extend(await send(base_url("paper"), "tiny-paper", ASKS))

    loading = asyncio.create_task(load())
    await until("answers", lambda: bool(answers))
    await asyncio.to_thread(what)
    done.set()
    await loading
    return answers


def engines(cluster: LocalCluster) -> set[tuple[str, int]]:
    """The running replicas and their processes."""
    actors = replica_actors(cluster.applications(), "paper")
    return {(name, actor["pid"]) for name, actor in actors.items()}


def bounds() -> set[int | None]:
    return {one["batching"].max_running.max for one in replicas("paper").values()}


async def test_another_batching_block_comes_without_a_restart_and_loses_no_request(
    cluster, deploy, model_path
):
    before = engines(cluster)
    assert len(before) == 2
    await until("the entry's own bound", lambda: bounds() == {MAX_NUM_SEQS})
    block = {"policy": "adaptive", "max_running": {"max": 16}}
    answers = await under_load(lambda: deploy(*paper_and_static(model_path, batching=block)))
    assert [a.error or a.status for a in answers if not a.whole] == []
    await until("the new bound", lambda: bounds() == {16})
    assert engines(cluster) == before
    deploy(*paper_and_static(model_path))  # a block that is removed gives the entry's back
    await until("the entry's own bound again", lambda: bounds() == {MAX_NUM_SEQS})
    assert engines(cluster) == before


async def test_a_rolling_update_under_load_cuts_no_stream(cluster, deploy, model_path):
    before = engines(cluster)
    paper, static = paper_and_static(model_path)
    changed = put(paper, ("args", "llm_configs", 0, "batching", "max_running", "max"), 9)
    answers = await under_load(lambda: deploy(changed, static))
    # While Ray Serve replaces the router, HAProxy answers some with 503 or 500, before any token.
    assert {a.status for a in answers} <= {200, 500, 503}
    assert [a.error for a in answers if a.status == 200 and not a.whole] == []
    assert sum(a.whole for a in answers) > len(answers) / 2
    assert len(after := engines(cluster)) == 2
    assert not after & before
