"""Request-level static batching by arithmetic, and the slots of a timeline."""

import pytest

from benchmarks.baselines.request_level import replay_request_level
from controller.config import Sla
from replicas.profiles.profile import LinearCost, StepProfile
from simulator.replay.timeline import idle_frac, place
from simulator.virtual.plan import EngineOptions, parse_policy
from simulator.virtual.trace import Stay, Trace
from simulator.workloads.requests import Request

COST = LinearCost(fixed_s=1.0, per_decode_s=0.1, per_prefill_s=0.01)


def run(requests: list[Request], slots: int, kv_tokens: int = 10_000) -> Trace:
    """These requests in batches of ``slots``: 1 s a step, 0.1 s a slot, 10 ms a prompt token."""
    engine = EngineOptions(max_num_seqs=slots, max_num_batched_tokens=2048)
    plan = parse_policy("request-level", Sla(), engine)
    return replay_request_level(requests, plan, StepProfile("p", "", kv_tokens, 1, 1, COST))


def test_a_batch_is_padded_to_its_longest_prompt_and_its_longest_output() -> None:
    trace = run([Request(0, 100, 2), Request(0, 50, 4)], slots=2)
    prefill_s, decode_s = 1 + 2 * 100 * 0.01, 1 + 2 * 0.1
    short, long = trace.outcomes
    assert short.first_token_s == long.first_token_s == pytest.approx(prefill_s)
    assert short.finished_s == pytest.approx(prefill_s + decode_s)
    assert long.finished_s == trace.end_s == pytest.approx(prefill_s + 3 * decode_s)
    assert [(s.end_s, s.slot_until_s) for s in trace.stays] == [
        (short.finished_s, trace.end_s),
        (trace.end_s, trace.end_s),
    ]


def test_the_next_batch_waits_for_the_whole_one_before() -> None:
    trace = run([Request(0, 10, 2), Request(0, 10, 9), Request(0.5, 10, 2)], slots=2)
    first_s = max(o.finished_s or 0 for o in trace.outcomes[:2])
    assert trace.outcomes[2].scheduled_s == first_s
    assert [o.tokens for o in trace.outcomes] == [2, 9, 2]


def test_memory_makes_batches_smaller_and_refuses_what_does_not_fit() -> None:
    trace = run([Request(0, 10, 10), Request(0, 10, 10), Request(0, 30, 10)], 8, kv_tokens=39)
    assert [o.refused for o in trace.outcomes] == [False, False, True]
    assert max(step.running for step in trace.steps) == 1


def test_stays_take_the_lowest_free_slot() -> None:
    stays = [Stay(0, 0, 4, 4), Stay(1, 0, 1, 2), Stay(2, 1, 3, 3), Stay(3, 2, 5, 5)]
    assert [(slot, stay.request) for slot, stay in place(stays)] == [(0, 0), (1, 1), (2, 2), (1, 3)]


def test_padding_and_empty_slots_are_idle() -> None:
    trace = run([Request(0, 100, 2), Request(0, 50, 4)], slots=2)
    busy_s = sum(o.finished_s or 0 for o in trace.outcomes)
    assert idle_frac(trace, 2) == pytest.approx(1 - busy_s / (2 * trace.end_s))
