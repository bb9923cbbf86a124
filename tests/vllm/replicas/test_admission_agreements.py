"""What a class is promised goes to the engine with each of its requests."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from vllm.sampling_params import SamplingParams

from controller.agreements import KEY, of_class
from controller.classes import one_class, parse_admission
from replicas.admission.admission import Admission
from replicas.admission.gate import Gate, current
from tests.unit.replicas.admission.builders import CLASSES

PROMPT = {"prompt_token_ids": [1, 2, 3]}


class Engine:
    """Keeps what it is told of each request."""

    def __init__(self) -> None:
        self.output_processor = SimpleNamespace(
            add_request=lambda _: None, process_outputs=lambda _: _, request_states={}
        )
        self.vllm_config = SimpleNamespace(scheduler_config=SimpleNamespace(policy="fcfs"))
        self.told: list[dict[str, Any] | None] = []

    async def generate(self, prompt: Any, params: Any, request_id: str) -> AsyncIterator[str]:
        self.told.append(params.extra_args)
        yield "a"


def gate_of(classes: Any, *, named: bool) -> tuple[Gate, Engine]:
    gate, engine = (
        Gate(Admission(classes, parse_admission(None), 9, 0.0), named_classes=named),
        Engine(),
    )
    gate.guard(engine)
    return gate, engine


async def told(engine: Engine, params: SamplingParams) -> dict[str, Any] | None:
    assert [o async for o in engine.generate(PROMPT, params, "r")] == ["a"]
    return engine.told[-1]


async def test_the_engine_is_told_what_a_class_is_promised_and_by_nobody_else() -> None:
    gate, engine = gate_of(CLASSES, named=True)
    mine = SamplingParams(extra_args={"other": 1, KEY: {"itl_s": 1e-3}})
    for name in CLASSES.by_name:
        current.set(gate.ticket({}, {"service_tier": name}))
        promised = of_class(CLASSES.by_name[name]).to_wire()
        assert await told(engine, mine) == {"other": 1, KEY: promised}
    current.set(None)
    assert await told(engine, SamplingParams()) == {
        KEY: of_class(CLASSES.by_name["silver"]).to_wire()
    }
    assert mine.extra_args == {"other": 1, KEY: {"itl_s": 1e-3}}  # the client's own object


async def test_where_no_classes_are_configured_nothing_is_told() -> None:
    _, engine = gate_of(one_class(None), named=False)
    assert await told(engine, SamplingParams()) is None
    assert await told(engine, SamplingParams(extra_args={KEY: {"itl_s": 1e-3}})) == {}
