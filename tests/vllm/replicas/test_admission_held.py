"""Where nobody is refused, an answer is held back until its first byte all the same."""

from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from vllm.v1.engine.exceptions import EngineDeadError

from replicas.admission.http import HeldMiddleware
from tests.vllm.replicas.test_admission_http import Engine, app_of, ask


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
async def unlimited(engine: Engine) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a replica where nobody is refused."""
    transport = httpx.ASGITransport(HeldMiddleware(app_of(engine), engine))
    async with httpx.AsyncClient(transport=transport, base_url="http://r") as made:
        yield made


@pytest.mark.parametrize("stream", [False, True])
async def test_without_admission_who_waited_for_a_dead_engine_may_come_again(
    unlimited: httpx.AsyncClient, engine: Engine, stream: bool
) -> None:
    assert "abc" in (await ask(unlimited)).text
    engine.outputs = _dies_of(engine)
    answer = await ask(unlimited, stream=stream)
    assert answer.status_code == 503
    assert answer.headers["x-brimful-reason"] == "engine_failed"
    assert float(answer.headers["retry-after-ms"]) >= 500
    assert answer.json()["error"]["type"] == "service_unavailable"


async def test_without_admission_other_answers_stay_what_they_were(
    unlimited: httpx.AsyncClient,
) -> None:
    assert (await ask(unlimited, service_tier="nothing")).json()["text"] == "abc"
    assert (await ask(unlimited, stream=True)).text.count("data: ") == 4


def _dies_of(engine: Engine) -> Callable[[], AsyncIterator[str]]:
    async def outputs() -> AsyncIterator[str]:
        engine.errored = True
        raise EngineDeadError
        yield ""

    return outputs
