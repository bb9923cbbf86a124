"""A step's counts, exactly: from schedules made by hand, and from those of vLLM's scheduler."""

import pytest
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput

from controller.law.rows import TOOK_S, RowHistory
from controller.records import StepSample
from replicas.engine.step_sample import step_sample
from tests.vllm.harness import Rig, limits


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
            id="drafts with a request computed again",
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
