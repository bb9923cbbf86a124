"""Which of its KV blocks a request shares, in vLLM's real block pool."""

import pytest
from vllm.config import KVTransferConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.request import Request

from replicas.engine.prefix_sharing import PrefixSharing
from replicas.engine.scheduler import DynamicBatchScheduler
from tests.vllm.connector import IdleConnector
from tests.vllm.harness import BLOCK, Rig, batching, engine_config, ngram

# Ten full blocks, and a token that is in none.
PROMPT = 10 * BLOCK + 1


@pytest.fixture
def rig(tiny_llama):
    return Rig.led(tiny_llama, blocks=200, enable_prefix_caching=True)


def prefixes(rig: Rig) -> PrefixSharing:
    return PrefixSharing(rig.scheduler.kv_cache_manager, BLOCK)


def shared(rig: Rig) -> dict[str, int]:
    running = rig.scheduler.running
    return dict(zip([r.request_id for r in running], prefixes(rig).shared(running), strict=True))


def waiting(rig: Rig, request_id: str, prompt: int = PROMPT) -> Request:
    return rig.add(request_id, prompt=prompt, output=40)


def test_who_is_alone_shares_nothing(rig):
    waiting(rig, "a")
    rig.step()
    assert shared(rig) == {"a": 0}
    assert prefixes(rig).found(waiting(rig, "b", prompt=BLOCK)) == (0, 0)  # its last is computed


def test_what_runs_is_found_by_what_waits_and_then_shared_by_both(rig):
    waiting(rig, "a")
    rig.step()
    longer = waiting(rig, "b", prompt=PROMPT + 3 * BLOCK)
    assert prefixes(rig).found(longer) == (10 * BLOCK, 10 * BLOCK)
    scheduled = rig.step()
    assert scheduled.scheduled_new_reqs[0].num_computed_tokens == 10 * BLOCK
    assert shared(rig) == {"a": 10 * BLOCK, "b": 10 * BLOCK}
    rig.abort("a")
    assert shared(rig) == {"b": 0}


def test_it_moves_as_others_come_and_go(rig):
    known, running = prefixes(rig), rig.scheduler.running
    for request_id, blocks, now in (("a", 10, [0]), ("b", 4, [4, 4]), ("c", 7, [7, 4, 7])):
        waiting(rig, request_id, prompt=blocks * BLOCK + 1)
        rig.step()
        assert known.shared(running) == [n * BLOCK for n in now]
    rig.abort("a")
    assert known.shared(running) == [4 * BLOCK, 4 * BLOCK]
    rig.abort("c")
    assert known.shared(running) == [0]


def test_it_is_seen_beside_sessions_that_hold_more_memory_than_is_shared(rig):
    rig.add("session", prompt=4, output=100, resumable=True)
    while not rig.scheduler.num_waiting_for_streaming_input:
        rig.step()
    for request_id in ("a", "b"):
        waiting(rig, request_id, prompt=3 * BLOCK + 1)
    rig.step()
    # Each has its last token, the one that it generated, and a block.
    assert rig.exchange().batch_table[:, 0].tolist() == [2 + BLOCK, 2 + BLOCK]


def test_a_part_in_use_and_a_part_in_the_cache(rig):
    waiting(rig, "long", prompt=PROMPT)
    rig.step()
    waiting(rig, "short", prompt=4 * BLOCK + 1)
    rig.step()
    rig.abort("long")
    assert prefixes(rig).found(waiting(rig, "b")) == (10 * BLOCK, 4 * BLOCK)


def test_who_will_not_read_the_cache_finds_nothing(rig):
    waiting(rig, "a")
    rig.step()
    other = waiting(rig, "b")
    other.skip_reading_prefix_cache = True
    assert prefixes(rig).found(other) == (0, 0)


@pytest.mark.parametrize("layers", [{}, {"window": 64}, {"states": True}])
def test_without_prefix_caching_it_is_not_asked(tiny_llama, layers):
    rig = Rig.led(tiny_llama, **layers)
    assert not prefixes(rig).enabled
    assert not prefixes(rig).unknown


@pytest.mark.parametrize("layers", [{}, {"window": 64}, {"states": True}])
def test_of_several_kinds_of_layers_those_that_attend_to_all_tell(tiny_llama, layers):
    rig = Rig.led(tiny_llama, enable_prefix_caching=True, **layers)
    waiting(rig, "a")
    rig.step()
    waiting(rig, "b")
    assert prefixes(rig).found(rig.scheduler.requests["b"]) == (10 * BLOCK, 10 * BLOCK)
    rig.step()
    assert shared(rig) == {"a": 10 * BLOCK, "b": 10 * BLOCK}
    held = [r.num_tokens - 10 * BLOCK + BLOCK for r in rig.scheduler.running]
    assert rig.exchange().batch_table[:, 0].tolist() == held


def test_who_begins_with_what_another_is_computing_follows_it(rig):
    known = prefixes(rig)
    first, other = waiting(rig, "a"), waiting(rig, "b", prompt=3 * BLOCK)
    assert known.in_flight([]) == []
    first.num_computed_tokens = 4 * BLOCK + 3
    in_flight = known.in_flight([first])
    assert in_flight == [(4, first.block_hashes[4])]
    assert known.follows(waiting(rig, "c", prompt=5 * BLOCK), in_flight)
    assert not known.follows(other, in_flight)  # all that it needs is there
    assert not known.follows(waiting(rig, "d", prompt=5 * BLOCK - 1), in_flight)
    alone = waiting(rig, "e", prompt=5 * BLOCK)
    alone.skip_reading_prefix_cache = True
    assert not known.follows(alone, in_flight)
    first.num_computed_tokens = 10 * BLOCK  # its own last token: nobody else's
    assert known.in_flight([first]) == []
    first.num_computed_tokens = PROMPT
    assert known.in_flight([first]) == []


def test_who_begins_like_one_that_is_computed_waits_for_it(rig):
    def may_start() -> int:
        return len(list(rig.scheduler._reader.first_waiting(9, rig.scheduler.running)))

    waiting(rig, "a")
    rig.step()
    late = waiting(rig, "b")
    waiting(rig, "c")
    assert may_start() == 2
    rig.scheduler.running[0].num_computed_tokens = 2 * BLOCK
    assert may_start() == 0
    late.skip_reading_prefix_cache = True
    assert may_start() == 1


class Stored(IdleConnector):
    """Holds all but the last block of any prompt, and loads that within the step."""

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return max((request.num_tokens - 1) // BLOCK * BLOCK - num_computed_tokens, 0), False


STORED = {
    "kv_transfer_config": KVTransferConfig(
        kv_connector="Stored", kv_role="kv_both", kv_connector_module_path=__name__
    )
}


@pytest.mark.parametrize(
    ("layers", "options"),
    [
        ({}, {"enable_prefix_caching": True}),
        ({"window": 64}, {"enable_prefix_caching": True}),
        ({"states": True}, {"enable_prefix_caching": True}),
        ({"only_window": 64}, {"enable_prefix_caching": True}),
        ({}, STORED),
        ({}, {"enable_prefix_caching": True, **STORED}),
    ],
    ids=["whole", "window", "states", "only a window", "stored", "stored and cached"],
)
def test_who_needs_little_beside_what_is_there_starts_as_early_as_under_vllm(
    tiny_llama, layers, options
):
    """A prefix of 40 blocks and a block of one's own, with a budget for less than one prompt."""
    ours = batching(policy="adaptive", sla={"itl_ms": 50})
    prefix, started = [1] * 40 * BLOCK, []
    for scheduler, batch in ((DynamicBatchScheduler, ours), (AsyncScheduler, {})):
        config = engine_config(tiny_llama, additional_config=batch, **options)
        rig = Rig(config, scheduler, **layers)
        rig.add("first", [*prefix, *[2] * BLOCK], output=100)
        rig.go_on(20)
        for k in range(8):
            rig.add(f"r{k}", [*prefix, *[10 + k] * BLOCK], output=40)
        started.append([len(rig.step().scheduled_new_reqs) for _ in range(3)])
        rig.run()
        assert rig.all_whole(8, 40)
    assert started[0] == started[1]
    assert sum(started[0]) == 8


def test_a_report_tells_what_is_cached_apart_from_what_is_computed(rig):
    waiting(rig, "a")
    waiting(rig, "b")
    report = rig.exchange()
    assert report.prompt_backlog_tokens == report.kv_backlog_tokens == 2 * PROMPT
    rig.step()
    while rig.scheduler.running:
        rig.step()
    report = rig.exchange()
    assert (report.lengths.n, report.lengths.input) == (2, 2 * PROMPT)
    first = report.lengths.cached  # both were scheduled in one step, or the second found the first
    assert report.written_tokens == 2 * PROMPT - first + 2 * 39
    waiting(rig, "c")
    report = rig.exchange()
    assert (report.prompt_backlog_tokens, report.kv_backlog_tokens) == (1, PROMPT)
    while rig.scheduler.requests:
        rig.step()
    assert rig.exchange().lengths.cached == first + 10 * BLOCK


@pytest.mark.parametrize("in_flight", [1, 2])
def test_tokens_that_were_drafted_and_accepted_are_written_to_memory(tiny_llama, in_flight):
    rig = Rig.led(tiny_llama, speculative_config=ngram(3), accepted=2, in_flight=in_flight)
    rig.add_all(3, prompt=30, output=60)
    rig.run()
    assert rig.all_whole(3, 60)
    # A step ahead each is scheduled once more than it has tokens.
    assert rig.exchange().written_tokens == 3 * (30 + 59 + in_flight - 1)


def test_a_cache_that_could_not_be_emptied_is_still_there(rig):
    waiting(rig, "a")
    rig.step()
    before = rig.exchange().written_tokens
    assert not rig.scheduler.reset_prefix_cache()
    assert rig.exchange().written_tokens == before
    rig.run()
    assert rig.scheduler.reset_prefix_cache()
    report = rig.exchange()
    assert report.written_tokens == before + 39 + report.engine.kv_tokens
