"""A step is sized for those that run in it, number by number."""

import math

import numpy as np
import pytest

from controller.agreements import Agreement
from controller.models.requests import Requests, requests_of
from controller.models.step_time import StepModel
from controller.policies.chunk import ChunkSizer
from controller.policies.class_chunks import ClassChunks, SampleByClass

# 20 ms, 0.2 ms a decode, 0.1 ms a prompt token.
MODEL = StepModel(0.02, 2e-4, 0.0, 1e-4, 0.0, 0.0)
GOLD, SILVER, BATCH = Agreement(0.05, 99, 2.0), Agreement(0.1, 99, 6.0), Agreement()
GOLD_S = 0.85 * 0.05  # as ``aim`` has it


def sizer(*agreements: Agreement) -> ClassChunks:
    """Before its first step: step-time targets of D."""
    one = ClassChunks(0.05)
    one.receive(MODEL)
    one.know(agreements or (GOLD, SILVER, BATCH))
    return one


def aim(one: ClassChunks, d_frac: float = 0.85) -> ClassChunks:
    """With step-time targets of this share of D."""
    for each in one._sizers.values():
        each._target.target_s = d_frac * each._target.limit_s
    return one


def running(*kinds: int, computed: int = 100) -> Requests:
    """One decode of each of these agreements."""
    n = len(kinds)
    numbers = np.array(kinds, dtype=np.int64)
    return requests_of([computed] * n, [computed] * n, [1] * n, [500] * n, None, numbers)


def chunk(one: ClassChunks, *kinds: int) -> int:
    one.decoding(np.array(kinds, dtype=np.int64))
    return one.chunk(len(kinds), 0, 0, least=16, most=2048)


def sample(
    step_s: float, tokens: tuple[int, ...], prefill: int = 0, **more: object
) -> SampleByClass:
    return SampleByClass(sum(tokens), 0, prefill, 0, step_s, 0, tokens, **more)


def test_the_chunk_is_what_the_strictest_that_decodes_leaves() -> None:
    one = sizer()
    # 50 - 20 - 2 x 0.2 ms; 100 - 20 - 2 x 0.2; no bound.
    assert chunk(one, 0, 2) in (295, 296)
    assert chunk(one, 1, 2) in (795, 796)
    assert chunk(one, 2, 2) == 2048


def test_alone_a_class_is_sized_as_its_own_sla_would_be() -> None:
    one, plain = sizer(GOLD), ChunkSizer(0.05, 99)
    plain.receive(MODEL)
    for k in range(300):
        prefill = chunk(one, *[0] * 10)
        assert prefill == plain.chunk(10, 0, 0, least=16, most=2048)
        step_s = MODEL.predict_s(10, 0, prefill, 0) * (1 + 0.05 * math.sin(k * k))
        classed = sample(step_s, (10,), prefill)
        one.observe(classed)
        plain.observe(classed)
        assert one._sizers[0.05, 99].until_s == plain.until_s


def test_a_class_that_is_left_out_no_more_is_again_after_tokens_in_time() -> None:
    one = sizer()
    one.observe(sample(0.04, (1, 1, 0), 10, longer=((1, 0.12),)))
    for tokens, kept in ((60, 1 - 60 * 0.0085), (60, 0.0)):
        one.observe(sample(0.04, (1, tokens, 0), 10), applied=False)  # what is not applied
        one.observe(sample(0.04, (1, tokens, 0), 10))
        assert one._kept_frac[1] == pytest.approx(0.02 * kept, abs=1e-4)


def test_a_step_that_comes_back_before_the_first_was_sized_is_no_error() -> None:
    ClassChunks(0.05).observe(sample(0.04, (1,), 10, longer=((0, 0.12),)))


def test_the_target_of_a_class_moves_by_its_own_tokens_alone() -> None:
    one = sizer()
    gold, silver = one._sizers[0.05, 99.0], one._sizers[0.1, 99.0]
    step_s = MODEL.predict_s(2, 0, 200, 0)
    for _ in range(80):
        one.observe(sample(step_s, (1, 1, 0), 200))
    before_s = gold.until_s, silver.until_s
    for k in range(80):  # every fourth takes half as long again
        one.observe(sample(step_s * (1.5 if k % 4 == 0 else 1.0), (0, 1, 1), 200))
    assert gold.until_s == before_s[0]
    assert silver.until_s < before_s[1]


def test_a_token_that_its_class_waited_for_too_long_counts_as_late() -> None:
    one = sizer()
    for _ in range(60):
        one.observe(sample(0.04, (1, 1, 0), 10))
    one.observe(sample(0.04, (1, 1, 0), 10, longer=((1, 0.12),)))
    assert one._sizers[0.1, 99.0]._target.not_caused == pytest.approx(1 / 61, rel=0.05)
    assert one._sizers[0.05, 99.0]._target.not_caused == 0
    assert one._kept_frac == pytest.approx([0, 0.02, 0])
    one.observe(sample(0.04, (1, 1, 0), 10, longer=((1, 0.08),)))
    assert one._kept_frac[1] == pytest.approx(0.02 * (1 - 0.85 * 0.01))
    one.observe(sample(0.04, (1, 1, 1), 10, longer=((2, 5.0),)))  # nobody's promise
    assert one._kept_frac[2] == 0


def left_out(
    one: ClassChunks, batch: Requests, waited_s: object = 0.0, wanted: int = 0
) -> list[int]:
    waited = np.broadcast_to(np.array(waited_s, dtype=float), (len(batch),)).copy()
    decoding = np.ones(len(batch), dtype=bool)
    out = one.left_out(batch, decoding, lambda: waited, lambda itl_s: wanted)
    return np.flatnonzero(out).tolist()


def test_nobody_is_left_out_where_all_have_room() -> None:
    one = aim(sizer())
    # 22.5 ms beside the fixed part: 112 decodes; up to half of them nobody is looked at.
    assert left_out(one, running(0, *[2] * 111)) == []
    assert left_out(one, running(*[2] * 256)) == []  # no bound
    assert left_out(one, running(*[0] * 256)) == []  # nobody has time to spare


def test_who_has_time_to_spare_is_left_out_of_a_step_that_would_be_late() -> None:
    one = aim(sizer())
    out = left_out(one, running(0, *[2] * 255))
    assert len(out) == 256 - 112
    assert 0 not in out
    # A class of 100 ms may miss one step of 42.5: 2 x 42.5 < 100 - 7.5.
    assert len(left_out(one, running(0, *[1] * 149))) == 150 - 112
    # ... but not another one.
    assert left_out(one, running(0, *[1] * 149), waited_s=0.0425) == []


def test_those_without_a_bound_are_left_out_before_those_with_one_and_in_turns() -> None:
    one = aim(sizer())
    batch = running(0, *[2] * 100, *[1] * 50)
    out = left_out(one, batch)
    assert len(out) == 151 - 112
    assert max(out) <= 100
    waited_s = np.zeros(151)
    waited_s[out] = 0.0425
    assert not set(left_out(one, batch, waited_s)) & set(out)
    waited_s[out[0]] = 0.95  # a second at most
    crowd = running(*[0] * 130, *[2] * 21)
    assert left_out(one, crowd, np.r_[np.zeros(130), 0.95, np.zeros(20)]) == list(range(131, 151))


def test_prompts_of_a_stricter_class_go_before_those_that_may_wait_but_for_their_turns() -> None:
    one = aim(sizer())
    batch = running(0, *[2] * 99)
    # 22.5 ms: 0.2 for the first, 22.3 for 99 of 0.2 or for prompts.
    assert left_out(one, batch, wanted=10) == []
    assert len(left_out(one, batch, wanted=60)) == 99 - 81  # 6 ms
    # Steps of 42.5 ms, in each of which 4.2 of 99 decode, and so 5, that decode once a second.
    assert len(left_out(one, batch, wanted=5000)) == 99 - 5
    few = running(0, *[2] * 55)
    assert left_out(one, few, wanted=5000) == []
    one.know((GOLD, SILVER, BATCH))
    asked: list[float] = []
    one.left_out(
        batch, np.ones(100, dtype=bool), lambda: np.zeros(100), lambda s: asked.append(s) or 0
    )
    assert asked == [math.inf]


def test_one_without_a_bound_is_back_three_steps_before_its_second_is_over() -> None:
    one = aim(sizer())
    batch = running(*[0] * 130, 2)
    for waited_s, out in ((0.87, [130]), (0.88, [])):  # 3 x 42.5 ms
        assert left_out(one, batch, np.r_[np.zeros(130), waited_s]) == out


def test_decodes_alone_get_no_more_than_the_strictest_has_whatever_prompts_may() -> None:
    one = aim(sizer(), 2.0)
    assert len(left_out(one, running(0, *[2] * 255))) == 256 - 150
    assert one.starting(running(*[0] * 140), running(*[0] * 20)) in (9, 10)


def test_those_that_have_to_decode_now_have_had_the_turn_of_their_class() -> None:
    one = aim(sizer())
    batch = running(0, *[1] * 80)  # in every other step of 42.5
    assert len(left_out(one, batch, wanted=5000)) == 40
    waited_s = np.zeros(81)
    waited_s[:31] = 0.0425
    # 30 have to; of the other 50 ten make it 40.
    assert len(left_out(one, batch, waited_s, wanted=5000)) == 40
    waited_s[:51] = 0.0425
    assert len(left_out(one, batch, waited_s, wanted=5000)) == 30


def test_a_stricter_request_starts_beside_decodes_that_can_be_left_out() -> None:
    one = aim(sizer())
    crowd = running(*[2] * 200)
    assert one.starting(crowd, running(2, 2, 2)) == 3  # no bound
    assert one.starting(crowd, running(0, 1, 2)) == 2  # the third waits until all fit
    assert one.starting(running(*[0] * 111), running(0, 0)) == 1
    # 100 ms: every other step of 42.5.
    assert one.starting(running(0, *[1] * 221), running(1, 1, 1)) == 1


def test_agreements_that_come_later_get_their_own_numbers() -> None:
    one = sizer(GOLD)
    one.know((GOLD, Agreement(0.2, 90.0)))
    assert chunk(one, 1) in (1797, 1798)  # 200 - 20 - 0.2 ms
    one.observe(sample(0.03, (0, 1)))
    one.receive(StepModel(0.01, 2e-4, 0.0, 1e-4, 0.0, 0.0))
    assert one._sizers[0.2, 90.0].model.c0 == pytest.approx(one.model.c0)
    one.resumed(9.0, 1)
    one.resumed(9.0, 7)  # nobody's


def test_where_the_strictest_seems_out_of_reach_one_step_in_sixteen_finds_out() -> None:
    one = sizer()
    one.receive(StepModel(0.06, 2e-4, 0.0, 1e-4, 0.0, 0.0))
    batch = running(0, *[2] * 99)
    found = [left_out(one, batch) for _ in range(32)]
    assert [k for k, out in enumerate(found, 1) if out] == [1, 17]
    assert found[0] == list(range(1, 100))
    assert left_out(one, running(*[2] * 99)) == []
    one.receive(MODEL)
    for _ in range(20):
        assert left_out(one, batch) == []
