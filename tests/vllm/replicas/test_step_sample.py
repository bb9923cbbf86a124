"""A step's counts, exactly: from schedules made by hand, and from those of vLLM's scheduler."""

from itertools import pairwise

import pytest
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput

from controller.law.rows import TOOK_S, RowHistory
from controller.records import StepSample
from replicas.engine.step_sample import step_sample
from tests.vllm.harness import BLOCK, Rig, limits, ngram


def schedule(
    cached: dict[str, tuple[int, int, int]],
    new: dict[str, tuple[int, int]] | None = None,
    drafts: dict[str, list[int]] | None = None,
) -> SchedulerOutput:
    """``cached``: id: (tokens given, tokens computed, tokens put out); ``new``: the first two."""
    new = new or {}
    output = SchedulerOutput.make_empty()
    output.scheduled_cached_reqs = CachedRequestData(
        req_ids=list(cached),
        resumed_req_ids=set(),
        new_token_ids=[],
        all_token_ids={},
        new_block_ids=[None] * len(cached),
        num_computed_tokens=[computed for _, computed, _ in cached.values()],
        num_output_tokens=[out for _, _, out in cached.values()],
    )
    output.scheduled_new_reqs = [
        NewRequestData(
            req_id=req_id,
            prompt_token_ids=[0] * (given + computed),
            mm_features=[],
            sampling_params=None,
            pooling_params=None,
            block_ids=(),
            num_computed_tokens=computed,
            lora_request=None,
        )
        for req_id, (given, computed) in new.items()
    ]
    output.num_scheduled_tokens = {r: v[0] for r, v in {**cached, **new}.items()}
    output.total_num_scheduled_tokens = sum(output.num_scheduled_tokens.values())
    output.scheduled_spec_decode_tokens = drafts or {}
    return output


def test_a_prompt_whose_first_chunk_is_one_token_is_one_to_compute_all_the_same():
    """Behind cached blocks; but for the last token, all of one that was loaded is computed."""
    scheduled = schedule({}, {"cut": (1, 64), "loaded": (1, 64), "short": (1, 0)})
    scheduled.scheduled_new_reqs[0].prompt_token_ids.extend([0] * 499)
    sample, _ = step_sample(scheduled, 0.5)
    assert sample.started == (500, 1)


@pytest.mark.parametrize(
    ("scheduled", "sample", "prefills"),
    [
        pytest.param(
            schedule({"a": (1, 100, 3), "b": (1, 50, 1)}),
            StepSample(2, 150, 0, 0, 0.5),
            [],
            id="decodes alone",
        ),
        pytest.param(
            schedule({"a": (1, 100, 3)}, {"n": (40, 0), "hit": (10, 64)}),
            StepSample(1, 100, 50, 40 * 40 // 2 + 10 * 64 + 10 * 10 // 2, 0.5, started=(40, 10)),
            ["n", "hit"],
            id="new requests, one with cached tokens",
        ),
        pytest.param(
            schedule({"a": (1, 100, 3), "chunk": (30, 512, 0)}),
            StepSample(1, 100, 30, 30 * 512 + 30 * 30 // 2, 0.5),
            ["chunk"],
            id="a further chunk of a prompt",
        ),
        pytest.param(
            schedule({"a": (1, 100, 3), "chunk": (1, 19, 0)}),
            StepSample(1, 100, 1, 19, 0.5),
            ["chunk"],
            id="a last chunk of one token",
        ),
        pytest.param(
            schedule({"a": (1, 100, 3), "again": (25, 0, 5)}),
            StepSample(1, 100, 25, 25 * 25 // 2, 0.5),
            ["again"],
            id="preempted and computed again",
        ),
        pytest.param(
            schedule(
                {"a": (4, 100, 3), "b": (1, 60, 2), "c": (3, 30, 1)},
                drafts={"a": [1, 2, 3], "c": [4, 5]},
            ),
            StepSample(3, 190, 0, 0, 0.5),
            [],
            id="decodes with drafts",
        ),
        pytest.param(
            schedule({"a": (4, 100, 3), "b": (5, 0, 2)}, drafts={"a": [1, 2, 3]}),
            StepSample(1, 100, 5, 5 * 5 // 2, 0.5),
            ["b"],
            id="drafts beside a request computed again",
        ),
        pytest.param(
            schedule({f"r{k}": (2, 10, 0) if k % 2 else (1, 100, 3) for k in range(40)}),
            StepSample(20, 2000, 40, 20 * (2 * 10 + 2), 0.5),
            [f"r{k}" for k in range(1, 40, 2)],
            id="many in prefill",
        ),
        pytest.param(schedule({}), StepSample(0, 0, 0, 0, 0.5), [], id="nothing"),
    ],
)
def test_a_schedule_made_by_hand_is_counted_exactly(scheduled, sample, prefills):
    assert step_sample(scheduled, 0.5) == (sample, prefills)


@pytest.fixture
def rig(tiny_llama):
    return Rig.led(tiny_llama)


def test_a_long_prompt_is_counted_chunk_by_chunk_beside_the_decodes(rig):
    rig.add("short", prompt=10, output=20)
    rig.step()
    rig.exchange(limits(64, token_budget=101))
    rig.add("long", prompt=250, output=3)
    samples = [step_sample(rig.step(), 0.5)[0] for _ in range(4)]
    assert samples == [
        StepSample(1, 10, 100, 100 * 100 // 2, 0.5, started=(250,)),
        StepSample(1, 11, 100, 100 * 100 + 100 * 100 // 2, 0.5),
        StepSample(1, 12, 50, 50 * 200 + 50 * 50 // 2, 0.5),
        StepSample(2, 13 + 250, 0, 0, 0.5),
    ]


@pytest.mark.parametrize("v2_runner", [False, True], ids=["V1 runner", "V2 runner"])
def test_a_request_that_lost_its_memory_is_counted_in_prefill_when_it_is_back(
    tiny_llama, v2_runner
):
    rig = Rig.led(tiny_llama, blocks=1 + 8)
    # vLLM's second model runner takes requests that resume as if they were new.
    rig.scheduler.use_v2_model_runner = v2_runner
    rig.add("kept", prompt=30, output=60)
    rig.add("lost", prompt=30, output=60)
    resumed = None
    while resumed is None:
        known = rig.scheduler.requests["lost"].num_tokens
        step = rig.step()
        if rig.scheduler.requests["lost"].num_preemptions and "lost" in step.num_scheduled_tokens:
            resumed = step
    sample, prefills = step_sample(resumed, 0.5)
    assert known > 30
    assert prefills == ["lost"]
    assert (sample.prefill_tokens, sample.prefill_context) == (known, known * known // 2)
    assert sample.decodes == len(resumed.num_scheduled_tokens) - 1


def test_a_prefix_cache_hit_is_context_and_not_work(tiny_llama):
    rig = Rig.led(tiny_llama, enable_prefix_caching=True)
    rig.add("first", prompt=10 * BLOCK + 4, output=1)
    rig.run()
    rig.add("second", prompt=10 * BLOCK + 4, output=1)
    sample, prefills = step_sample(rig.step(), 0.5)
    assert sample == StepSample(0, 0, 4, 4 * 10 * BLOCK + 4 * 4 // 2, 0.5, started=(4,))
    assert prefills == ["second"]


def test_speculative_decodes_attend_to_what_was_accepted(tiny_llama):
    rig = Rig.led(tiny_llama, speculative_config=ngram(3), accepted=2)
    rig.add("r", prompt=10, output=40)
    samples = [step_sample(rig.step(), 0.5)[0] for _ in range(5)]
    assert [s.prefill_tokens for s in samples] == [10, 0, 0, 0, 0]
    assert [s.decodes for s in samples] == [0, 1, 1, 1, 1]
    assert [b.kv_tokens - a.kv_tokens for a, b in pairwise(samples[2:])] == [3, 3]


def test_draft_tokens_that_pad_a_last_prompt_token_are_no_prompt(tiny_llama):
    """vLLM gives it as many rows as a decode with its drafts."""
    rig = Rig.led(tiny_llama, speculative_config=ngram(3), enable_prefix_caching=True)
    rig.add("first", prompt=10 * BLOCK + 1, output=40)
    for _ in range(3):
        rig.step()
    rig.add("second", prompt=10 * BLOCK + 1, output=4)
    scheduled = rig.step()
    assert scheduled.num_scheduled_tokens["second"] == 4
    sample, prefills = step_sample(scheduled, 0.5)
    assert (sample.decodes, sample.prefill_tokens, prefills) == (1, 1, ["second"])
    assert sample.prefill_context == 10 * BLOCK


def test_with_steps_in_flight_a_request_decodes_from_its_first_placeholder_on(tiny_llama):
    rig = Rig.led(tiny_llama, in_flight=2)
    rig.add("r", prompt=10, output=5)
    samples = [step_sample(rig.step(), 0.5)[0] for _ in range(3)]
    assert samples == [
        StepSample(0, 0, 10, 50, 0.5, started=(10,)),
        StepSample(1, 10, 0, 0, 0.5),
        StepSample(1, 11, 0, 0, 0.5),
    ]


def test_the_controller_has_every_steps_row_though_reports_and_limits_are_lost(rig):
    """Every third report never comes to it, every fifth answer never comes back."""
    history, rows = RowHistory(), []
    for index in range(40):
        rig.add(f"r{index}", prompt=5 + 17 * index % 90, output=3 + index % 20)
        rig.step_s = 0.01 + 0.001 * (index % 7)
        samples = [step_sample(done, rig.step_s)[0] for done in rig.go_on(3)]
        rows += [[*sample.features, sample.duration_s] for sample in samples]
        packed = rig.exchange().rows
        if index % 3 == 2:
            continue
        if index == 20:  # one that starts anew
            history = RowHistory()
        history.add(packed)
        if index % 5 != 4:
            rig.exchange(limits(64, wanted_row=history.wanted))
    history.add(rig.exchange().rows)
    assert history.wanted == len(rows)
    assert history.rows.numbers.tolist() == list(range(len(rows)))
    assert history.rows.table[:, :TOOK_S].tolist() == [row[:TOOK_S] for row in rows]
    assert history.rows.table[:, TOOK_S] == pytest.approx([row[TOOK_S] for row in rows])
    assert history.rows.starts.tolist() == [5 + 17 * index % 90 for index in range(40)]
