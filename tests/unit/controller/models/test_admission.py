"""How many waiting requests start: what fits, what pays, what the accepted share allows."""

from typing import Any

import pytest

from controller.models import admission
from controller.models.admission import MemoryAdmission
from controller.models.requests import Requests, requests_of
from controller.models.step_time import StepModel
from controller.models.survival import OutputCounts, length_bin

# 20 ms, and 0.1 ms a prompt token: r = B / 200.
MODEL = StepModel(0.02, 2e-4, 1e-7, 1e-4, 0.0, 0.0)


def requests(n: int, prompt: int = 100, outputs: int = 0, most: int = 4000) -> Requests:
    """n alike; their prompts are computed where they have generated something."""
    computed = prompt + outputs if outputs else 0
    return requests_of([computed] * n, [prompt] * n, [outputs] * n, [most] * n)


def knowing(
    length: int, kv_tokens: int, n: int = 500, epsilon: float | None = 0.02
) -> MemoryAdmission:
    """An engine that has seen n answers of one length from their beginning."""
    admission = MemoryAdmission(kv_tokens, 16, epsilon)
    for _ in range(n):
        admission.finished(length)
    return admission


def test_of_a_known_length_as_many_start_as_fit_at_their_end() -> None:
    # 100 in and 128 out: 228 tokens and half a block each at the end; 50 of them in 11,800.
    fitting, _ = knowing(128, 11_800).fitting(requests(0), requests(64), 0, MODEL)
    assert 46 <= fitting <= 52


def test_requests_that_end_soon_make_room_for_those_that_peak_later() -> None:
    # 40 that end in a few steps hold 9,000 tokens now and nothing when the new ones peak.
    admission = knowing(128, 11_800)
    fitting, _ = admission.fitting(requests(40, outputs=120), requests(20), 9_000, MODEL)
    assert fitting >= 15


def test_a_memory_that_holds_all_needs_no_forecast() -> None:
    fitting, together = knowing(128, 10**7).fitting(requests(10), requests(64), 0, MODEL)
    assert (fitting, together) == (64, None)


def test_max_tokens_can_be_enough_to_know() -> None:
    # 74 requests of 100 tokens that may generate 20 more: 9,000 tokens and a block each, at most.
    newcomer = MemoryAdmission(11_000, 16, 0.02)
    short = requests(10, outputs=1, most=21), requests(64, most=20)
    assert newcomer.fitting(*short, 1_010, MODEL) == (64, None)
    fitting, together = newcomer.fitting(requests(10, outputs=1), requests(64), 1_010, MODEL)
    assert fitting < 64
    assert together is not None


def test_a_preempted_request_may_be_older_than_all_that_run() -> None:
    admission = knowing(100, 2_000)
    admission.fitting(requests(2, outputs=5), requests(20), 300, MODEL)
    waiting = requests_of([0] * 21, [50] * 21, [3000] + [0] * 20, [4000] * 21)
    fitting, _ = admission.fitting(requests(2, outputs=5), waiting, 300, MODEL)
    assert fitting == 0  # 3,050 tokens are more than there are
    fitting, _ = admission.fitting(requests(0), waiting, 0, MODEL)
    assert fitting == 0


def test_more_memory_admits_more() -> None:
    # Five run and hold 500; each one holds 300 and a block at its end, newcomers like them.
    def fitting(kv_tokens: int) -> int:
        return knowing(200, kv_tokens).fitting(requests(5), requests(60), 500, MODEL)[0]

    counts = [fitting(kv) for kv in range(1_000, 24_000, 500)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 60)
    assert len(set(counts)) > 30  # a request or two for every 500 tokens
    assert fitting(9_000) == pytest.approx(9_000 / 316 - 5, abs=2)


def priced(c0: float, c3: float, kv_tokens: int = 11_800, epsilon: float | None = None) -> int:
    """How many of 64 start, of 100 tokens and 128 more each, where a step takes that."""
    model = StepModel(c0, 2e-4, 1e-7, c3, 0.0, 0.0)
    one = knowing(128, kv_tokens, epsilon=epsilon)
    return one.fitting(requests(0), requests(64), 0, model)[0]


def test_where_recomputing_costs_nothing_the_batch_is_full_now() -> None:
    # 64 of 100 tokens and a block fit; 64 that have generated 128 more do not.
    assert priced(0.02, 0.0) == 64


def test_where_an_empty_slot_costs_nothing_memory_hardly_ever_overflows() -> None:
    # 50 hold 228 tokens and half a block each at their end.
    assert 40 <= priced(0.0, 1e-4) <= 50


@pytest.mark.parametrize(("kv_tokens", "starts"), [(117, 1), (116, 0)])
def test_a_prompt_and_a_block_have_to_leave_room(kv_tokens: int, starts: int) -> None:
    model = StepModel(0.02, 2e-4, 1e-7, 0.0, 0.0, 0.0)  # a preemption costs nothing
    one = MemoryAdmission(kv_tokens, 16, None)
    assert one.fitting(requests(0), requests(1), 0, model)[0] == starts


@pytest.mark.parametrize(("kv_tokens", "starts"), [(132, 1), (131, 0)])
def test_what_cannot_overflow_starts_at_any_price(kv_tokens: int, starts: int) -> None:
    # 100, a block, and 16 at the last horizon.
    dear = StepModel(0.0, 2e-4, 1e-7, 1e-4, 0.0, 0.0)
    one = MemoryAdmission(kv_tokens, 16, None)
    assert one.fitting(requests(0), requests(1, most=19), 0, dear)[0] == starts


def test_each_that_starts_makes_the_next_ones_preemption_dearer() -> None:
    # r is B / 200. At the r of the first one alone 100 would start.
    spread = MemoryAdmission(11_800, 16, None)
    for k in range(500):
        spread.finished(1 + 37 * k % 256)
    assert spread.fitting(requests(0), requests(110), 0, MODEL)[0] == 84


def test_the_dearer_a_preemption_the_fewer_start() -> None:
    spread = MemoryAdmission(11_800, 16, None)
    for k in range(500):
        spread.finished(1 + 37 * k % 256)
    counts = []
    for c3 in (0.0, 3e-5, 1e-4, 3e-4, 1e-3, 1e-2, 1.0):
        model = StepModel(0.02, 2e-4, 1e-7, c3, 0.0, 0.0)
        counts.append(spread.fitting(requests(0), requests(110), 0, model)[0])
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) > 3, counts


@pytest.mark.parametrize("kv_tokens", [300, 3_000, 8_000, 11_800, 14_000, 20_000])
@pytest.mark.parametrize("c3", [0.0, 1e-4, 1e-2])
def test_a_bound_on_the_share_only_ever_lets_fewer_start(kv_tokens: int, c3: float) -> None:
    assert priced(0.02, c3, kv_tokens, epsilon=0.02) <= priced(0.02, c3, kv_tokens)


@pytest.mark.parametrize("epsilon", [None, 0.02])
@pytest.mark.parametrize("elsewhere", [0, 160, 3_000, 8_000, 11_000])
def test_what_is_held_elsewhere_is_taken_off_the_memory(
    elsewhere: int, epsilon: float | None
) -> None:
    running, waiting = requests(10, outputs=20), requests(64)
    used = 10 * 120 + 80
    found, _ = knowing(128, 11_800, epsilon=epsilon).fitting(
        running, waiting, used + elsewhere, MODEL, elsewhere
    )
    less, _ = knowing(128, 11_800 - elsewhere, epsilon=epsilon).fitting(
        running, waiting, used, MODEL
    )
    assert found == less


@pytest.mark.parametrize(("elsewhere", "asked"), [(0, False), (1, True)])
def test_what_is_held_elsewhere_counts_where_all_may_fit(elsewhere: int, asked: bool) -> None:
    # Ten of 100 tokens that may generate 20 more, and a block each.
    one = MemoryAdmission(10 * (120 + 16), 16, None)
    _, together = one.fitting(requests(0), requests(10, most=20), elsewhere, MODEL, elsewhere)
    assert (together is not None) is asked


def test_the_groups_lengths_stand_in_for_a_newcomers() -> None:
    lengths = OutputCounts()
    for _ in range(500):
        lengths.add(128)
    settled, _ = knowing(128, 11_800).fitting(requests(0), requests(64), 0, MODEL)
    cold, _ = MemoryAdmission(11_800, 16, 0.02).fitting(requests(0), requests(64), 0, MODEL)
    newcomer = MemoryAdmission(11_800, 16, 0.02)
    newcomer.receive(tuple(map(float, lengths.counts)))
    newcomer.receive(None)  # nobody knows better now, so what was received stays
    warm, _ = newcomer.fitting(requests(0), requests(64), 0, MODEL)
    assert warm == pytest.approx(settled, abs=4)
    assert cold < warm


def theta_after(applied: bool, epsilon: float = 0.1) -> float:
    one = MemoryAdmission(11_800, 16, epsilon)
    one.finished(10, applied=applied)
    assert one.theta is not None
    return one.theta.value


def test_an_end_moves_theta_where_admission_went_by_it() -> None:
    assert theta_after(applied=True) == pytest.approx(1 - 0.2 * 0.1)
    assert theta_after(applied=False) == 1.0
    one = MemoryAdmission(11_800, 16, 0.1)
    one.finished(10)  # it did unless something else is said
    assert one.theta is not None
    assert one.theta.value == pytest.approx(1 - 0.2 * 0.1)


def test_preemptions_within_8_steps_move_theta_once() -> None:
    one = MemoryAdmission(11_800, 16, 0.02)
    assert one.theta is not None
    for _ in range(9):
        one.stepped()
    one.preempted()
    for _ in range(7):
        one.stepped()
    one.preempted()
    assert one.theta.value == pytest.approx(1.2)
    one.stepped()
    one.preempted()
    assert one.theta.value == pytest.approx(1.4)


@pytest.mark.parametrize(("kv_tokens", "starts"), [(132, 1), (131, 0)])
def test_with_theta_at_its_highest_all_that_a_request_may_hold_has_to_fit(
    kv_tokens: int, starts: int
) -> None:
    # Of 19 tokens more the horizons have 1, 5, 10 and 16: 100, a block, and 16.
    one = MemoryAdmission(kv_tokens, 16, 0.02)
    for _ in range(10):
        one.preempted()
        for _ in range(8):
            one.stepped()
    fitting, together = one.fitting(requests(0), requests(1, most=19), 0, MODEL)
    assert together is not None
    assert fitting == starts


@pytest.mark.parametrize("candidates", [1, 3, 20])
def test_where_the_first_does_not_pay_none_starts(candidates: int) -> None:
    one = MemoryAdmission(6_000, 16, None)
    assert one.fitting(requests(50, outputs=20), requests(candidates), 6_000, MODEL)[0] == 0


def test_without_a_bound_on_the_share_there_is_no_theta() -> None:
    one = MemoryAdmission(11_800, 16, None)
    one.preempted()
    one.finished(10)
    assert one.theta is None


def test_the_larger_theta_is_the_fewer_start() -> None:
    spread = MemoryAdmission(11_800, 16, 0.02)
    for k in range(500):
        spread.finished(1 + 37 * k % 256, applied=False)
    counts = []
    for _ in range(6):
        counts.append(spread.fitting(requests(0), requests(110), 0, MODEL)[0])
        for _ in range(8):
            spread.stepped()
        spread.preempted()
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) > 3, counts


def test_an_outlook_is_kept_until_it_no_longer_suffices() -> None:
    one = knowing(128, 11_800)
    one.fitting(requests(0), requests(110), 0, MODEL)
    first = one._outlook
    one.fitting(requests(3, outputs=8), requests(110), 600, MODEL)
    assert one._outlook is first
    one.fitting(requests(3, outputs=90), requests(110), 600, MODEL)
    assert one._outlook is not first  # older than any that it has a row for
    second = one._outlook
    for _ in range(64):
        one.stepped()
    one.fitting(requests(0), requests(110), 0, MODEL)
    assert one._outlook is not second  # lengths were brought up to date


@pytest.mark.parametrize(("told", "double"), [(True, False), (False, True)])
def test_a_preempted_request_that_is_not_asked_for_counts_once(told: bool, double: bool) -> None:
    # It waits all the time, and is asked for every other time: its tokens are no news.
    admission = knowing(600, 20_000, n=20)
    old, new = requests(1, outputs=500), requests(1)
    for asked in [old, new] * 20:
        if told:
            admission.see(old.outputs)
        admission.fitting(requests(2, outputs=5), asked, 300, MODEL)
        for _ in range(8):
            admission.stepped()
    at_risk = admission._lengths._pool.pooled().at_risk
    assert (at_risk[length_bin(400)] > 20 + 1) == double


def test_a_loss_weighs_more_where_lengths_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def paying(*args: Any, **kwargs: Any) -> int:
        seen.append(args[4])
        return real(*args, **kwargs)

    real = admission.paying
    monkeypatch.setattr(admission, "paying", paying)
    alike, spread = knowing(128, 11_800, epsilon=None), knowing(128, 11_800, epsilon=None)
    for length in range(1, 500):
        spread.finished(length)
    for one in (alike, spread):
        one.fitting(requests(0), requests(64), 0, MODEL)
    assert seen[0] == seen[1] > 0.9
    assert seen[2] == seen[3] < 0.5
