"""A step is sized for those that run in it: chunks, who is left out, who starts, what each pays."""

import math

import numpy as np
import pytest

from controller.models.requests import Requests, requests_of
from controller.models.step_target import StepTarget
from controller.models.step_time import StepModel
from controller.policies.chunk import GapChunks, StepHistory
from controller.policies.class_chunks import ClassChunks, SampleByClass
from controller.request_slo import RequestSlo

# 20 ms, 0.2 ms a decode, 0.1 ms a prompt token.
MODEL = StepModel(0.02, 2e-4, 0.0, 1e-4, 0.0, 0.0)
GOLD, SILVER = RequestSlo(0.05, 99, 2.0), RequestSlo(0.1, 99, 6.0)
BATCH, UNPROMISED = RequestSlo(ttft_s=600.0), RequestSlo()
GOLD_S = 0.85 * 0.05  # as ``aim`` has it


def sizer(*slos: RequestSlo) -> ClassChunks:
    """Before its first step: step-time targets of D."""
    one = ClassChunks(0.05, StepHistory(0.05))
    one.history.receive(MODEL)
    one.know(slos or (GOLD, SILVER, BATCH))
    return one


def aim(one: ClassChunks, d_frac: float = 0.85) -> ClassChunks:
    """With step-time targets of this share of D."""
    for each in one._sizers.values():
        each.target.target_s = d_frac * each.target.itl_s
    return one


def running(*kinds: int, computed: int = 100) -> Requests:
    """One decode of each of these SLOs."""
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
    one, plain = sizer(GOLD), GapChunks(0.05, 99, StepHistory(0.05))
    plain.history.receive(MODEL)
    for k in range(300):
        prefill = chunk(one, *[0] * 10)
        assert prefill == plain.chunk(10, 0, 0, least=16, most=2048)
        step_s = MODEL.predict_s(10, 0, prefill, 0) * (1 + 0.05 * math.sin(k * k))
        classed = sample(step_s, (10,), prefill)
        one.observe(classed)
        plain.observe(classed)
        assert one._sizers[0.05, 99].target.target_s == plain.target.target_s


def test_a_class_that_is_left_out_no_more_is_again_after_tokens_in_time() -> None:
    one = sizer()
    one.observe(sample(0.04, (1, 1, 0), 10, longer=((1, 0.12),)))
    for tokens, kept in ((60, 1 - 60 * 0.0085), (60, 0.0)):
        one.observe(sample(0.04, (1, tokens, 0), 10), applied=False)  # what is not applied
        one.observe(sample(0.04, (1, tokens, 0), 10))
        assert one._reserve_frac[1] == pytest.approx(0.02 * kept, abs=1e-4)


def test_a_step_that_comes_back_before_the_first_was_sized_is_no_error() -> None:
    ClassChunks(0.05, StepHistory(0.05)).observe(sample(0.04, (1,), 10, longer=((0, 0.12),)))


def test_the_target_of_a_class_moves_by_its_own_tokens_alone() -> None:
    one = sizer()
    gold, silver = one._sizers[0.05, 99.0], one._sizers[0.1, 99.0]
    step_s = MODEL.predict_s(2, 0, 200, 0)
    for _ in range(80):
        one.observe(sample(step_s, (1, 1, 0), 200))
    before_s = gold.target.target_s, silver.target.target_s
    for k in range(80):  # every fourth takes half as long again
        one.observe(sample(step_s * (1.5 if k % 4 == 0 else 1.0), (0, 1, 1), 200))
    assert gold.target.target_s == before_s[0]
    assert silver.target.target_s < before_s[1]


def test_a_token_that_its_class_waited_for_too_long_counts_as_late() -> None:
    one = sizer()
    for _ in range(60):
        one.observe(sample(0.04, (1, 1, 0), 10))
    one.observe(sample(0.04, (1, 1, 0), 10, longer=((1, 0.12),)))
    assert one._sizers[0.1, 99.0].target.late_anyway == pytest.approx(1 / 61, rel=0.05)
    assert one._sizers[0.05, 99.0].target.late_anyway == 0
    assert one._reserve_frac == pytest.approx([0, 0.02, 0])
    one.observe(sample(0.04, (1, 1, 0), 10, longer=((1, 0.08),)))
    assert one._reserve_frac[1] == pytest.approx(0.02 * (1 - 0.85 * 0.01))
    one.observe(sample(0.04, (1, 1, 1), 10, longer=((2, 5.0),)))  # nobody's promise
    assert one._reserve_frac[2] == 0


def skipped(
    one: ClassChunks, batch: Requests, waited_s: object = 0.0, wanted: int = 0
) -> list[int]:
    waited = np.broadcast_to(np.array(waited_s, dtype=float), (len(batch),)).copy()
    decoding = np.ones(len(batch), dtype=bool)
    out = one.skipped(batch, decoding, lambda: waited, lambda itl_s: wanted)
    return np.flatnonzero(out).tolist()


@pytest.mark.parametrize(
    ("kinds", "waited_s", "wanted", "out"),
    [
        # 22.5 ms beside the fixed part: 112 decodes; up to half of them nobody is looked at.
        ([0, *[2] * 111], 0.0, 0, 0),
        ([2] * 256, 0.0, 0, 0),  # no bound
        ([0] * 256, 0.0, 0, 0),  # nobody has time to spare
        ([0, *[2] * 255], 0.0, 0, 256 - 112),
        # A class of 100 ms may miss one step of 42.5, 2 x 42.5 < 100 - 7.5, but not another one.
        ([0, *[1] * 149], 0.0, 0, 150 - 112),
        ([0, *[1] * 149], 0.0074, 0, 150 - 112),
        ([0, *[1] * 149], 0.0076, 0, 0),
        ([0, *[1] * 149], 0.0425, 0, 0),
        # Prompts of a stricter class go before those that may wait: 22.3 ms for 99 of 0.2 or them.
        ([0, *[2] * 99], 0.0, 10, 0),
        ([0, *[2] * 99], 0.0, 60, 99 - 81),  # 6 ms
        # ... but for their turns: in steps of 42.5 ms 4.2 of 99, and so 5, decode once a second.
        ([0, *[2] * 99], 0.0, 5000, 99 - 5),
        ([0, *[2] * 55], 0.0, 5000, 0),
    ],
)
def test_who_has_time_to_spare_is_left_out_of_a_step_that_would_be_late(
    kinds, waited_s, wanted, out
):
    found = skipped(aim(sizer()), running(*kinds), waited_s, wanted)
    assert len(found) == out
    assert not {kinds[place] for place in found} & {0}


def test_those_without_a_bound_are_left_out_before_those_with_one_and_in_turns() -> None:
    one = aim(sizer())
    batch = running(0, *[2] * 100, *[1] * 50)
    out = skipped(one, batch)
    assert len(out) == 151 - 112
    assert max(out) <= 100
    waited_s = np.zeros(151)
    waited_s[out] = 0.0425
    assert not set(skipped(one, batch, waited_s)) & set(out)
    waited_s[out[0]] = 0.95  # a second at most
    crowd = running(*[0] * 130, *[2] * 21)
    assert skipped(one, crowd, np.r_[np.zeros(130), 0.95, np.zeros(20)]) == list(range(131, 151))


def test_one_without_a_bound_is_back_three_steps_before_its_second_is_over() -> None:
    one = aim(sizer())
    batch = running(*[0] * 130, 2)
    for waited_s, out in ((0.87, [130]), (0.88, [])):  # 3 x 42.5 ms
        assert skipped(one, batch, np.r_[np.zeros(130), waited_s]) == out


def test_decodes_alone_get_no_more_than_the_strictest_has_whatever_prompts_may() -> None:
    one = aim(sizer(), 2.0)
    assert len(skipped(one, running(0, *[2] * 255))) == 256 - 150
    assert one.starting(running(*[0] * 140), running(*[0] * 20)) in (9, 10)


def test_those_that_have_to_decode_now_have_had_the_turn_of_their_class() -> None:
    one = aim(sizer())
    batch = running(0, *[1] * 80)  # in every other step of 42.5
    assert len(skipped(one, batch, wanted=5000)) == 40
    waited_s = np.zeros(81)
    waited_s[:31] = 0.0425
    # 30 have to; of the other 50 ten make it 40.
    assert len(skipped(one, batch, waited_s, wanted=5000)) == 40
    waited_s[:51] = 0.0425
    assert len(skipped(one, batch, waited_s, wanted=5000)) == 30


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
    one.know((GOLD, RequestSlo(0.2, 90.0)))
    assert chunk(one, 1) in (1797, 1798)  # 200 - 20 - 0.2 ms
    one.observe(sample(0.03, (0, 1)))
    one.history.receive(StepModel(0.01, 2e-4, 0.0, 1e-4, 0.0, 0.0))
    assert one._sizers[0.2, 90.0].history.model.c0 == pytest.approx(one.history.model.c0)
    one.resumed(9.0, 1)
    one.resumed(9.0, 7)  # nobody's


def test_where_the_strictest_seems_out_of_reach_one_step_in_sixteen_finds_out() -> None:
    one = sizer()
    one.history.receive(StepModel(0.06, 2e-4, 0.0, 1e-4, 0.0, 0.0))
    batch = running(0, *[2] * 99)
    found = [skipped(one, batch) for _ in range(32)]
    assert [k for k, out in enumerate(found, 1) if out] == [1, 17]
    assert found[0] == list(range(1, 100))
    assert skipped(one, running(*[2] * 99)) == []
    one.history.receive(MODEL)
    for _ in range(20):
        assert skipped(one, batch) == []


@pytest.mark.parametrize(("step_s", "gap_s"), [(0.15, 0.2), (0.04, 0.12)])
def test_a_gap_is_late_once_be_it_by_its_own_step_or_by_those_before(step_s, gap_s):
    one = sizer()
    for _ in range(60):
        one.observe(sample(0.04, (0, 1, 0), 10))
    one.observe(sample(step_s, (0, 1, 0), 10, longer=((1, gap_s),)))
    assert one._sizers[0.1, 99.0].target.late_anyway == pytest.approx(1 / 61, rel=0.05)


def test_some_start_beside_others_however_short_the_target_or_infeasible_d_is() -> None:
    one = aim(sizer(), 0.1)
    one.history.receive(StepModel(0.03, 2e-4, 0.0, 1e-4, 0.0, 0.0))
    # 30.2 ms are one decode, and 1.98 a tenth of what D leaves beside it: ten decodes.
    assert one.starting(running(0), running(*[0] * 30)) == 9
    one.history.receive(StepModel(0.06, 2e-4, 0.0, 1e-4, 0.0, 0.0))  # D is infeasible: 120.4 ms
    assert one.starting(running(0), running(*[0] * 400)) in (300, 301)


def test_cap_and_capacity_are_by_the_class_whose_d_is_nearest_to_the_sla(monkeypatch):
    one = sizer()
    full_s = {0.05: 0.04, 0.1: 0.1}
    monkeypatch.setattr(
        StepTarget, "full_load_target_s", property(lambda target: full_s[target.itl_s])
    )
    assert one.reported.tail_frac == pytest.approx(0.25)
    assert one.reported.costs == one.history.model.costs
    monkeypatch.undo()
    assert ClassChunks(0.05, StepHistory(0.05)).reported.tail_frac == 0


def asked(one: ClassChunks, batch: Requests, waited_s: object) -> list[float]:
    """Prompts were asked for of requests with less than this between tokens."""
    waited, found = np.array(waited_s, dtype=float), list[float]()
    everybody = np.ones(len(batch), dtype=bool)
    one.skipped(batch, everybody, lambda: waited, lambda itl_s: found.append(itl_s) or 0)
    return found


def test_prompts_go_before_decodes_of_the_loosest_that_can_wait() -> None:
    batch = running(0, *[1] * 60, *[2] * 60)
    assert asked(aim(sizer()), batch, [0.0] * 121) == [math.inf]
    # Those without a bound have to decode now: prompts of silver do not go before silver.
    assert asked(aim(sizer()), batch, [0.0] * 61 + [0.95] * 60) == [SILVER.itl_s]


def test_three_classes_by_hand() -> None:
    # 22.5 ms, of which gold takes 0.2. In each step of 42.5 half of silver has its turn, 30, and
    # 2.55 of the others, 3. Prompts of 10 ms are before the rest: 12.3 are 61, 28 more of silver.
    batch = running(0, *[1] * 60, *[2] * 60)
    assert skipped(aim(sizer()), batch, wanted=100) == [59, 60, *range(64, 121)]


def test_a_few_decodes_are_left_out_all_the_same_to_find_out_what_is_out_of_reach() -> None:
    # Two steps of one decode: 52.2 ms are left for 31 decodes of 6.2.
    one = sizer()
    one.history.receive(StepModel(0.052, 2e-4, 0.0, 1e-4, 0.0, 0.0))
    found = [skipped(one, running(0, *[2] * 30)) for _ in range(17)]
    assert found == [[*range(1, 31)], *[[]] * 15, [*range(1, 31)]]


def test_nobody_is_left_out_where_all_take_half_of_the_room_but_for_rounding() -> None:
    few_s = (GOLD_S - 0.02) / 2
    for frac, all_decode in ((1 - 5e-10, True), (1 + 5e-10, False)):
        one = ClassChunks(0.05, StepHistory(0.05))
        one.history.receive(StepModel(0.02, frac * few_s / 32, 0.0, 1e-4, 0.0, 0.0))
        one.know((GOLD, SILVER, BATCH))
        aim(one)
        assert (skipped(one, running(0, *[2] * 31), wanted=5000) == []) is all_decode


def test_every_agreement_is_held_to_what_its_tokens_wait_on_their_way_out() -> None:

    whole, known, later = sizer(), sizer(), ClassChunks(0.05, StepHistory(0.05))
    known.set_target_frac(0.9)
    later.history.receive(MODEL)
    later.set_target_frac(0.9)
    later.know((GOLD, SILVER, BATCH))
    for one in (whole, known, later):
        for _ in range(20):
            one.observe(sample(MODEL.predict_s(2, 0, 200, 0), (1, 1, 0), 200))
    for kind, less_s in ((0, 0.005), (1, 0.01)):
        held = chunk(known, kind)
        assert chunk(whole, kind) - held == pytest.approx(less_s / 1e-4, rel=0.3)
        assert chunk(later, kind) == held


def test_what_is_out_of_reach_again_is_probed_at_once() -> None:
    one, batch = sizer(), running(0, *[2] * 99)
    slow = StepModel(0.06, 2e-4, 0.0, 1e-4, 0.0, 0.0)
    for _ in range(2):
        one.history.receive(slow)
        found = [bool(skipped(one, batch)) for _ in range(5)]
        assert found == [True, False, False, False, False]
        one.history.receive(MODEL)
        skipped(one, batch)


def test_late_tokens_of_those_left_out_leave_their_class_less_to_spare() -> None:

    one, batch = aim(sizer()), running(0, *[1] * 149)
    assert len(skipped(one, batch)) == 150 - 112
    for _ in range(5):  # 2% of 100 ms each: 90 - 7.5 ms do not hold two steps of 42.5
        step_s = MODEL.predict_s(2, 0, 10, 0)
        one.observe(sample(step_s, (1, 1, 0), 10, longer=((1, 0.12),)))
    assert skipped(aim(one), batch) == []


READING = StepModel(0.02, 1e-4, 1e-6, 1e-4, 0.0, 0.0)  # 0.2 ms a decode of 100 tokens as well


def reading() -> ClassChunks:
    one = aim(sizer())
    one.history.receive(READING)
    return one


def test_what_decodes_read_counts_when_some_are_left_out() -> None:
    one = reading()
    assert skipped(one, running(0, *[2] * 111)) == []
    assert len(skipped(one, running(0, *[2] * 255))) == 256 - 112
    assert len(skipped(one, running(0, *[2] * 255, computed=300))) == 256 - 56


def test_what_decodes_read_counts_when_others_want_to_start() -> None:
    one = reading()
    assert one.starting(running(*[0] * 110), running(0, 0, 0)) == 1
    assert one.starting(running(*[0] * 55, computed=300), running(0, 0, 0, computed=300)) == 1


def test_agreements_with_one_time_between_tokens_share_a_step_time_target() -> None:
    one = sizer(GOLD, RequestSlo(0.05, 99, 9.0))
    for _ in range(60):
        one.observe(sample(0.04, (1, 1), 10))
    for number in (0, 1):
        one.resumed(9.0, number)
    (shared,) = one._sizers.values()
    assert shared.target.late_anyway == pytest.approx(2 / 121, rel=0.05)


def test_a_class_keeps_back_half_of_its_time_at_most() -> None:

    one = sizer()
    for _ in range(100):
        step_s = MODEL.predict_s(2, 0, 10, 0)
        one.observe(sample(step_s, (1, 1, 0), 10, longer=((1, 0.12),)))
    assert one._reserve_frac[1] == 0.5


@pytest.mark.parametrize(
    ("prompt_tokens", "waited_s", "left_out"),
    [(0, 0.0, 0), (1, 0.0, 0), (500, 0.0, 40), (500, 4.5, 40), (500, 4.99, 0)],
)
def test_who_is_promised_nothing_has_what_prompts_leave_and_a_token_in_five_seconds(
    prompt_tokens: int, waited_s: float, left_out: int
) -> None:
    one = sizer(GOLD, BATCH, UNPROMISED)
    batch, decoding = running(0, *[2] * 40), np.ones(41, dtype=bool)  # 8 of the 30 ms of room

    def wanted(itl_s: float) -> int:
        return prompt_tokens

    waits = np.full(41, waited_s)
    out = one.skipped(batch, decoding, lambda: waits, wanted)
    assert not out[0]
    # Each has its turn: one step in a hundred is 0.4 of the 40.
    assert left_out - 1 <= int(out.sum()) <= left_out
    others = running(0, *[1] * 40)  # those with a deadline are all in it
    assert not one.skipped(others, decoding, lambda: np.zeros(41), wanted).any()


def test_who_is_promised_nothing_yields_to_prompts_with_a_deadline_alone() -> None:
    one, asked_for = sizer(GOLD, BATCH, UNPROMISED), list[float | None]()

    def wanted(itl_s: float | None) -> int:  # 500 tokens, of a class without a time between tokens
        asked_for.append(itl_s)
        return 500 if itl_s is None else 0

    waits, decoding = np.zeros(41), np.ones(41, dtype=bool)
    out = one.skipped(running(0, *[2] * 40), decoding, lambda: waits, wanted)
    assert 39 <= int(out.sum()) <= 40
    # 20 with a deadline have their place beside those: they do not yield to their own class.
    both = one.skipped(running(0, *[1] * 20, *[2] * 20), decoding, lambda: waits, wanted)
    assert not both[:21].any()
    assert 19 <= int(both.sum()) <= 20
    asked_for.clear()
    assert not one.skipped(running(0, *[1] * 40), decoding, lambda: waits, wanted).any()
    assert None not in asked_for


def test_promised_is_who_has_either_time() -> None:
    one = sizer(GOLD, BATCH, UNPROMISED)
    assert one.stricter(running(0, 1, 2), None).tolist() == [True, True, False]
    assert one.stricter(running(0, 1, 2), math.inf).tolist() == [True, False, False]
