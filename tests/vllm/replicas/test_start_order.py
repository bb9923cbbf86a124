"""Who is next, and what those hold who do not run: read from vLLM's two queues and its blocks."""

import pytest
from vllm.lora.request import LoRARequest
from vllm.v1.request import Request, RequestStatus

from replicas.engine import batch_reader
from replicas.engine.start_order import may_start
from replicas.engine.vllm_queues import all_waiting, second_queue
from tests.vllm.harness import BLOCK, SKIPS_APART, Rig
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


@pytest.mark.parametrize("ranks", [(1, 0), (0, 1), (0, 0)])
def test_by_priority_the_two_queues_are_one(tiny_llama, ranks):
    rig = rig_of(tiny_llama, scheduling_policy="priority")
    rig.add("a", prompt=20, output=5, priority=ranks[0])
    rig.now_s += 1
    by_grammar(rig, "g", priority=ranks[1]).set_result(object())
    expected = order(rig)
    # Not a whole step: there is no grammar to follow.
    started = [new.req_id for new in rig.scheduler.schedule().scheduled_new_reqs]
    assert started == expected
    assert sorted(expected) == ["a", "g"]


@pytest.mark.parametrize(
    ("grammar", "starts"), [(None, False), (ValueError("no such grammar"), False), (object(), True)]
)
def test_a_grammar_that_is_no_future_any_more_is_there_or_has_failed(tiny_llama, grammar, starts):
    rig = rig_of(tiny_llama)
    by_grammar(rig, "g")
    (request,) = all_waiting(rig.scheduler)
    request.structured_output_request._grammar = grammar
    assert order(rig) == (["g"] if starts else [])


def test_a_preempted_request_whose_output_is_under_way_is_passed_over(tiny_llama):
    rig = rig_of(tiny_llama)
    request = rig.add("r", prompt=20, output=5)
    request.status = RequestStatus.PREEMPTED
    assert order(rig) == ["r"]
    request.num_stale_output_tokens = 1
    assert order(rig) == []
    request.drop_stale_output = True
    assert order(rig) == ["r"]


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


def test_a_request_whose_kv_is_still_loaded_is_passed_over(tiny_llama):
    rig = rig_of(tiny_llama)
    loading = rig.add("loading", prompt=20, output=5)
    rig.add("a", prompt=20, output=5)
    loading.status = RequestStatus.WAITING_FOR_REMOTE_KVS
    assert order(rig) == ["a"]
    rig.scheduler.finished_recving_kv_req_ids.add("loading")
    assert order(rig) == ["loading", "a"]


def load(rig: Rig, request_id: str, prompt: int) -> Request:
    """A request whose KV comes from elsewhere, as vLLM keeps it: its blocks are there already."""
    scheduler = rig.scheduler
    request = rig.add(request_id, prompt=prompt, output=5)
    scheduler.waiting.remove_request(request)
    scheduler.kv_cache_manager.allocate_slots(
        request, 0, num_external_computed_tokens=prompt, delay_cache_blocks=True
    )
    request.status = RequestStatus.WAITING_FOR_REMOTE_KVS
    request.num_computed_tokens = prompt
    second_queue(scheduler).add_request(request)
    return request


def first(rig: Rig) -> list[tuple[int, int]]:
    """Tokens to compute and of memory to take, of the first that may start."""
    return list(rig.scheduler._reader.first_waiting(9, []))


def test_what_a_session_holds_is_not_computed_again_when_it_goes_on(tiny_llama):
    rig = rig_of(tiny_llama, enable_prefix_caching=True)
    session = rig.add("session", prompt=2 * BLOCK + 3, output=3, resumable=True)
    rig.go_on(4)
    rig.add("session", prompt=5, output=3, resumable=True)
    assert session.num_computed_tokens == 2 * BLOCK + 3 + 2
    # The last token that it generated is dropped.
    assert first(rig) == [(5, 5 + BLOCK)]


@pytest.mark.parametrize("when", ["waiting", "running", "between steps"])
def test_an_aborted_request_is_forgotten(tiny_llama, when):
    rig = Rig.led(tiny_llama, in_flight=2)
    rig.add("r", prompt=600, output=5)
    steps = {"waiting": 0, "running": 1, "between steps": 2}[when]
    rig.go_on(steps)
    rig.abort("r")
    rig.run()
    assert rig.scheduler._awaits_first_token == {}
    assert rig.exchange().ttft.n == 0


def test_of_a_backlog_the_share_of_the_first_looked_up_is_taken_to_be_cached(
    tiny_llama, monkeypatch
):
    monkeypatch.setattr(batch_reader, "QUEUED", 2)
    rig = rig_of(tiny_llama, enable_prefix_caching=True, max_num_seqs=8)
    prefix = [5] * (4 * BLOCK)
    rig.add("first", prompt=[*prefix, 6], output=1)
    rig.run()
    for name, prompt in (
        ("a", [*prefix, *[7] * 4 * BLOCK]),
        ("b", [8] * 8 * BLOCK),
        ("c", [*prefix, *[9] * 4 * BLOCK]),
        ("d", [*prefix, *[10] * 4 * BLOCK]),
    ):
        rig.add(name, prompt=prompt, output=5)
    # Of a and b a quarter is there; of all four it is 12 blocks of 32.
    report, whole = rig.exchange(), 4 * 8 * BLOCK
    assert (report.prompt_backlog_tokens, report.kv_backlog_tokens) == (whole * 3 // 4, whole)
