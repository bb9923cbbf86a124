"""The link hands another batching block to the engine first, and to the controller from then on."""

from types import SimpleNamespace
from typing import Any

import pytest

from controller.config import parse_batching
from controller.errors import ConfigError
from replicas import channel
from replicas.control_link import ControlLink
from replicas.leaving import LeavingTokens
from tests.vllm.harness import Rig, batching, engine_config

OLD = parse_batching({"policy": "static", "max_running": {"max": 5}})


@pytest.fixture
async def link(tiny_llama) -> ControlLink:
    block = {"policy": "static", "max_running": {"max": 5}}
    rig = Rig(engine_config(tiny_llama, additional_config=batching(**block)))

    async def call_utility_async(method: str, *args: Any) -> Any:
        assert method == channel.CONFIGURE
        return rig.scheduler.configure(*args)

    core = SimpleNamespace(call_utility_async=call_utility_async, rig=rig)
    return ControlLink(
        SimpleNamespace(engine_core=core),
        OLD,
        replica_id="r",
        group="g",
        metrics=None,
        leaving=LeavingTokens(),
    )


def in_engine(link: ControlLink) -> Any:
    return link._client.engine_core.rig.scheduler.governor.config


async def test_engine_and_controller_get_the_new_block(link: ControlLink) -> None:
    new = parse_batching({"policy": "adaptive", "sla": {"itl_ms": 80}, "lease_s": 9})
    await link.configure(new)
    assert in_engine(link) == new
    assert parse_batching(link._batching) == new
    assert link._config.lease_s == 9


async def test_what_the_engine_refuses_goes_nowhere(link: ControlLink) -> None:
    with pytest.raises(ConfigError, match="65 is above max_num_seqs=64"):
        await link.configure(parse_batching({"max_running": {"max": 65}}))
    assert in_engine(link) == parse_batching(link._batching) == OLD


async def test_the_same_block_again_changes_nothing(link: ControlLink) -> None:
    before = in_engine(link)
    await link.configure(OLD)
    assert in_engine(link) is before
