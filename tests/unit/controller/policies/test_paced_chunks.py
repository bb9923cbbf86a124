"""The chunk under paced delivery: what the slack has time for."""

import numpy as np
import pytest

from controller.models.pace import DeadlineSlack, Remaining
from controller.models.step_time import StepModel
from controller.policies.chunk import ChunkSizer, StepHistory
from controller.policies.paced import PacedChunks
from controller.policies.registry import make_step_half
from controller.records import StepSample
from tests.builders import batching, engine

TRUE = StepModel(0.02, 2e-4, 0.0, 1e-4, 0.0, 0.0)
DECODES = 50  # 30 ms


def learned(ttft_s: float = 0.0) -> PacedChunks:
    sizer = PacedChunks(0.05, 99.0, ttft_s, StepHistory(0.05), tiles=True)
    for k in range(400):
        features = DECODES + k % 7, 0, (k % 5) * 40, 0
        sizer.observe(StepSample(*features, TRUE.predict_s(*features), late=0))
    return sizer


def leads_of(*slack_s: float) -> DeadlineSlack:
    return DeadlineSlack(np.array(slack_s), np.full(len(slack_s), 10.0))


def chunk(sizer: ChunkSizer, most: int = 8192) -> int:
    return sizer.chunk(DECODES, 0, 0, least=16, most=most)


def test_without_leads_a_chunk_is_what_d_has_time_for() -> None:
    sizer = learned()
    sizer.look(leads_of(), None)
    assert chunk(sizer) == pytest.approx(200, rel=0.02)


def test_half_of_the_least_lead_is_lent_to_prompts() -> None:
    sizer = learned()
    sizer.look(leads_of(0.1, 0.8), None)
    assert sizer.target_s == pytest.approx(0.05 + 0.05, rel=0.03)
    assert chunk(sizer, most=300) == 300


def test_a_long_step_has_whole_tiles_of_tokens() -> None:
    sizer = learned()
    sizer.look(leads_of(0.1, 0.8), None)
    assert chunk(sizer) == 512 - DECODES  # of some 750
    sizer.look(leads_of(0.4), None)
    assert chunk(sizer) == 2048 - DECODES  # of some 2,200 and 50
    sizer.look(leads_of(0.0), None)
    assert chunk(sizer) == pytest.approx(200, rel=0.05)  # less than one tile
    sizer.look(leads_of(0.02), None)
    assert sizer.chunk(DECODES, 0, 0, least=256, most=8192) > 256  # too little would be left
    assert chunk(sizer) == 256 - DECODES


def decode_target_s(sizer: PacedChunks) -> float:
    return sizer.decode_targets()[0][1]


def test_decodes_may_take_half_of_the_steady_pace() -> None:
    sizer = learned(2.0)
    everybody = Remaining(np.array([0.0, 400.0]), np.array([200.0, 10.0]), lambda frac: 100.0)
    before = decode_target_s(sizer)
    sizer.look(leads_of(5.0), everybody)
    # Half of 2 s lasts for 100 tokens: 10 ms a step, of which decodes take five.
    assert decode_target_s(sizer) - before == pytest.approx(0.005, rel=0.01)
    sizer._pace.budget.tokens = -1.0
    sizer.look(leads_of(5.0), everybody)
    assert decode_target_s(sizer) == pytest.approx(before)
    sizer.look(leads_of(), None)
    assert decode_target_s(sizer) == pytest.approx(before)


def test_what_is_late_is_made_good_before_prompts() -> None:
    sizer = learned()
    sizer.look(leads_of(-0.01, 0.8), None)
    assert chunk(sizer) == pytest.approx(100, rel=0.1)


def test_decodes_alone_are_held_to_d_whatever_they_lead_by() -> None:
    sizer = learned()
    sizer.look(leads_of(5.0), None)
    assert sizer.in_time(140, 0)
    assert not sizer.in_time(400, 0)


def test_a_gap_after_a_preemption_costs_its_lead_and_no_more() -> None:
    sizer = learned()
    sizer.look(leads_of(0.1), None)
    before = sizer.target_s
    sizer.resumed(3.0)
    sizer.look(leads_of(0.1), None)
    assert sizer.target_s == before


def test_an_sla_out_of_reach_is_given_up() -> None:
    sizer = PacedChunks(0.021, 99.0, 0.0, StepHistory(0.021), tiles=True)
    for k in range(400):
        features = 1 + k % 7, 0, (k % 5) * 40, 0
        sizer.observe(StepSample(*features, TRUE.predict_s(*features), late=1))
    sizer.look(leads_of(9.0), None)
    assert sizer.target_s == pytest.approx(2 * 0.0202, rel=0.02)


def test_what_is_late_is_made_good_by_steps_of_decodes_alone_as_well() -> None:
    sizer = learned()
    sizer.look(leads_of(0.0, 0.8), None)
    assert sizer.in_time(140, 0)  # 48 ms
    sizer.look(leads_of(-0.01, 0.8), None)
    assert not sizer.in_time(140, 0)
    assert sizer.in_time(90, 0)


def known() -> PacedChunks:
    sizer = learned()
    sizer.history.receive(TRUE)  # of batches that were not seen, too
    return sizer


def crowded(sizer: PacedChunks) -> int:
    """The chunk beside 200 decodes, which take 60 ms."""
    return sizer.chunk(200, 0, 0, least=16, most=8192)


def test_a_chunk_that_is_given_without_room_is_given_whole() -> None:
    sizer = known()
    chunks = [crowded(sizer) for _ in range(100)]
    assert chunks[:-1] == [0] * 99
    assert chunks[-1] == pytest.approx(500, rel=0.02)  # and no tile less


def test_prompt_tokens_that_were_computed_end_the_wait() -> None:
    sizer = known()
    for _ in range(99):
        crowded(sizer)
    features = DECODES, 0, 40, 0
    sizer.observe(StepSample(*features, TRUE.predict_s(*features), late=0))
    assert crowded(sizer) == 0


def test_late_tokens_of_steps_that_were_not_sized_here_teach_nothing() -> None:
    seen, unseen = learned(), learned()
    for sizer, late in ((seen, DECODES), (unseen, None)):
        for _ in range(20):
            sizer.observe(StepSample(DECODES, 0, 0, 0, 0.031, late=late), applied=False)
        sizer.look(leads_of(0.1, 0.8), None)
    assert seen.target_s == unseen.target_s
    seen.observe(StepSample(DECODES, 0, 0, 0, 0.031, late=DECODES))
    seen.look(leads_of(0.1, 0.8), None)
    assert seen.target_s < unseen.target_s


def test_where_a_decode_is_several_tokens_no_tiles_are_cut() -> None:
    sizer = PacedChunks(0.05, 99.0, 0.0, StepHistory(0.05), tiles=False)
    sizer.history.receive(TRUE)
    for k in range(400):
        features = DECODES + k % 7, 0, (k % 5) * 40, 0
        sizer.observe(StepSample(*features, TRUE.predict_s(*features), late=0))
    sizer.look(leads_of(0.1, 0.8), None)
    assert chunk(sizer) == pytest.approx(700, rel=0.03)
    assert (chunk(sizer) + DECODES) % 256


@pytest.mark.parametrize(
    ("size", "tiles"),
    [({}, True), ({"tokens_per_decode": 3}, False), ({"whole_chunk_tokens": 64}, False)],
)
def test_tiles_are_cut_where_a_decode_is_one_token_and_chunks_are_of_any_size(size, tiles):
    paced = batching(policy="adaptive", sla={"itl_ms": 50, "delivery": "paced"})
    half = make_step_half(paced, engine(**size))
    assert half._chunks._tiles is tiles  # type: ignore[attr-defined]


def test_tokens_that_wait_on_their_way_out_take_nothing_off_a_paced_step() -> None:
    sizer = learned()
    sizer.look(leads_of(0.0, 0.8), None)
    before = sizer.target_s
    sizer.set_target_frac(0.9)
    assert sizer.target_s == before
    assert sizer.in_time(140, 0)


def test_a_step_of_prompts_alone_moves_no_account() -> None:
    sizer = learned()
    before = sizer._pace.budget.tokens, sizer._pace.margin_s
    sizer.observe(StepSample(0, 0, 200, 0, 0.04, late=0))
    assert (sizer._pace.budget.tokens, sizer._pace.margin_s) == before


def test_a_lead_that_is_gone_with_its_request_is_lent_no_more() -> None:
    sizer = learned()
    sizer.look(leads_of(), None)
    before = sizer.target_s
    sizer.look(leads_of(3.0), None)
    assert sizer.target_s > 1
    sizer.look(leads_of(), None)
    assert sizer.target_s == before
