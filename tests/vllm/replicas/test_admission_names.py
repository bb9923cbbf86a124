"""What clients call their requests is no name: gateways send one trace's with all of its calls."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
from vllm.sampling_params import SamplingParams

from controller.classes import parse_admission
from replicas.admission.admission import Admission
from replicas.admission.gate import Gate, WaitedTooLongError, current
from tests.unit.replicas.admission.builders import CLASSES
from tests.vllm.replicas.test_admission_http import PROMPT, Engine, begins, first_token


@pytest.mark.parametrize("begun", [0, 1])
async def test_requests_of_one_name_have_each_its_own_timeout(begun: int) -> None:
    engine = Engine()
    gate = Gate(Admission(CLASSES, parse_admission(None), 10, 0.0), named_classes=True)
    gate.guard(engine)
    numbers, done = itertools.count(), asyncio.Event()
    arrived = [asyncio.Event(), asyncio.Event()]

    async def outputs() -> AsyncIterator[str]:
        number = next(numbers)
        begins(engine, f"r-{number}")
        arrived[number].set()
        await arrived[1].wait()
        if number == begun:
            first_token(engine, f"r-{number}")
            await done.wait()
        else:
            await asyncio.Event().wait()
        yield "abc"

    async def ask() -> str:
        current.set(gate.ticket({"x-request-timeout-seconds": "0.2"}, {}))
        answer = engine.generate(PROMPT, SamplingParams(), "one trace")
        return "".join([output async for output in answer])

    engine.outputs = outputs
    tasks = [asyncio.create_task(ask())]
    await arrived[0].wait()
    tasks.append(asyncio.create_task(ask()))
    with pytest.raises(WaitedTooLongError):
        await tasks[1 - begun]
    assert (gate.admission.waiting.running, gate.admission.waiting.requests) == (1, 0)
    done.set()
    assert await tasks[begun] == "abc"
    assert sum(gate.admission.counts.started.values()) == 1
    assert not gate._unstarted
