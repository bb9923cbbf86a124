"""Who is next, and what those hold who do not run: read from vLLM's two queues and its blocks."""

from vllm.lora.request import LoRARequest

from replicas.engine.start_order import may_start
from tests.vllm.harness import SKIPS_APART, Rig
from tests.vllm.replicas.rigs import by_grammar


def rig_of(tiny_llama, **config) -> Rig:
    return Rig.led(tiny_llama, **config)


def order(rig: Rig) -> list[str]:
    return [r.request_id for r in may_start(rig.scheduler)]


def test_those_that_were_passed_over_come_first_once_they_can_start(tiny_llama):
    rig = rig_of(tiny_llama)
    rig.add("a", prompt=20, output=5)
    first, second = by_grammar(rig, "g"), by_grammar(rig, "h")
    assert order(rig) == ["a"]
    second.set_result(object())
    expected = ["h", "a"] if SKIPS_APART else ["a", "h"]  # no step has passed it over yet
    assert order(rig) == expected
    first.set_exception(ValueError("no such grammar"))
    assert order(rig) == expected


def test_those_whose_adapter_has_no_slot_are_passed_over(tiny_llama):
    rig = rig_of(tiny_llama, enable_lora=True, max_loras=2, max_lora_rank=8)

    def add(request_id: str, adapter: int) -> None:
        lora = LoRARequest(f"adapter{adapter}", adapter, "/nowhere") if adapter else None
        rig.add(request_id, prompt=20, output=5, lora_request=lora)

    add("runs", 1)
    rig.step()
    for request_id, adapter in (("a", 2), ("b", 3), ("c", 1), ("d", 0), ("e", 2), ("f", 3)):
        add(request_id, adapter)
    expected = order(rig)
    assert expected == ["a", "c", "d", "e"]
    assert [new.req_id for new in rig.step().scheduled_new_reqs] == expected
