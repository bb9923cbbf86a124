"""What clients send, to bare vLLM and to a replica's app: the same status and shape of answer.

If ours answers otherwise on purpose, ``tests/vllm/probes.py`` says why.
"""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from vllm.v1.engine.async_llm import AsyncLLM

from replicas.door.auth import Door, Rules
from replicas.door.settings import parse_security
from replicas.server.app import guard_app
from replicas.server.egress import LeavingTokens
from replicas.server.stream_ends import OpenAnswers
from replicas.workarounds.grammar_answers import answer_for_grammars
from tests.vllm.emulated_app import emulated_app
from tests.vllm.probes import PROBES, Probe, alike, shape_of_text

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

TOOLS = {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"}


def as_a_replica(llm: AsyncLLM, app: Any, security: dict[str, Any]) -> Any:
    """The app with what a replica puts before it (``BrimfulServer``)."""
    answer_for_grammars(llm)
    door = Door(Rules(parse_security(security)))
    guard_app(app, llm, door, OpenAnswers(), LeavingTokens(on=True))
    return door


def asking(app: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://r", timeout=60)


@pytest.fixture(scope="module")
async def both(tiny_llama) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient, Door]]:
    """Bare vLLM, a replica, and its door."""
    bare_llm, bare = await emulated_app(tiny_llama, 8, 0.02, scheduler=None, frontend=TOOLS)
    llm, ours = await emulated_app(tiny_llama, 8, 0.02, frontend=TOOLS)
    door = as_a_replica(llm, ours, {})
    async with asking(bare) as first, asking(ours) as second:
        yield first, second, door
    bare_llm.shutdown()
    llm.shutdown()


async def told(client: httpx.AsyncClient, probe: Probe) -> tuple[int, Any]:
    headers = list(probe.headers)
    request = client.build_request(
        probe.method, probe.path, content=probe.content or None, headers=headers
    )
    answer = await client.send(request)
    return answer.status_code, shape_of_text(answer.text)


async def test_clients_are_answered_as_by_bare_vllm_but_for_a_list_with_reasons(both) -> None:
    bare, ours, _ = both
    unlike, needless = {}, []
    for probe in PROBES:
        theirs, mine = await told(bare, probe), await told(ours, probe)
        same = theirs[0] == mine[0] and alike(theirs[1], mine[1])
        if same and probe.why:
            needless.append(probe.name)
        elif not same and not probe.why:
            unlike[probe.name] = (theirs, mine)
    assert unlike == {}
    assert needless == []  # the list has no reason more than it needs
