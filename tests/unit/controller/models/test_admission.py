"""How many waiting requests start: what fits, what pays, what the accepted share allows."""

import pytest

from controller.models.admission import MemoryAdmission
from controller.models.lookahead import Forecast
from controller.models.requests import Requests, requests_of
from controller.models.step_time import StepModel
from controller.models.survival import length_bin

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


def test_requests_that_end_soon_make_room_for_those_that_peak_later() -> None:
    # 40 that end in a few steps hold 9,000 tokens now and nothing when the new ones peak.
    admission = knowing(128, 11_800)
    fitting, _ = admission.fitting(requests(40, outputs=120), requests(20), 9_000, MODEL)
    assert fitting >= 15


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


@pytest.mark.parametrize(
    ("c0", "c3", "most", "kv_tokens", "starts"),
    [
        # A preemption costs nothing: a prompt and a block have to leave room.
        (0.02, 0.0, 4000, 117, 1),
        (0.02, 0.0, 4000, 116, 0),
        # What cannot overflow starts at any price: 100, a block, and 16 at the last horizon.
        (0.0, 1e-4, 19, 132, 1),
        (0.0, 1e-4, 19, 131, 0),
    ],
)
def test_the_price_decides_what_has_to_have_room(c0, c3, most, kv_tokens, starts):
    model, one = StepModel(c0, 2e-4, 1e-7, c3, 0.0, 0.0), MemoryAdmission(kv_tokens, 16, None)
    assert one.fitting(requests(0), requests(1, most=most), 0, model)[0] == starts


def spread_lengths(epsilon: float | None) -> MemoryAdmission:
    one = MemoryAdmission(11_800, 16, epsilon)
    for k in range(500):
        one.finished(1 + 37 * k % 256, applied=False)
    return one


def test_each_that_starts_makes_the_next_ones_preemption_dearer() -> None:
    # r is B / 200. At the r of the first one alone 100 would start.
    assert spread_lengths(None).fitting(requests(0), requests(110), 0, MODEL)[0] == 84


def test_the_dearer_a_preemption_the_fewer_start() -> None:
    spread, counts = spread_lengths(None), []
    for c3 in (0.0, 3e-5, 1e-4, 3e-4, 1e-3, 1e-2, 1.0):
        model = StepModel(0.02, 2e-4, 1e-7, c3, 0.0, 0.0)
        counts.append(spread.fitting(requests(0), requests(110), 0, model)[0])
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) > 3, counts
    # Where recomputing costs nothing the batch is full now; where a slot does, memory never is.
    assert priced(0.02, 0.0) == 64
    assert 40 <= priced(0.0, 1e-4) <= 50


@pytest.mark.parametrize("kv_tokens", [300, 3_000, 8_000, 11_800, 14_000, 20_000])
@pytest.mark.parametrize("c3", [0.0, 1e-4, 1e-2])
def test_a_bound_on_the_share_only_ever_lets_fewer_start(kv_tokens: int, c3: float) -> None:
    assert priced(0.02, c3, kv_tokens, epsilon=0.02) <= priced(0.02, c3, kv_tokens)


@pytest.mark.parametrize("epsilon", [None, 0.02])
@pytest.mark.parametrize("elsewhere", [0, 160, 3_000, 8_000, 11_000])
def test_what_is_held_elsewhere_is_taken_off_the_memory(elsewhere, epsilon):
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


@pytest.mark.parametrize("applied", [{}, {"applied": True}, {"applied": False}])
def test_an_end_moves_theta_where_admission_went_by_it(applied: dict[str, bool]) -> None:
    one = MemoryAdmission(11_800, 16, 0.1)
    one.finished(10, **applied)
    moved = 0.2 * 0.1 * applied.get("applied", True)
    assert one.margin is not None and one.margin.value == pytest.approx(1 - moved)


@pytest.mark.parametrize(("kv_tokens", "starts"), [(132, 1), (131, 0)])
def test_with_theta_at_its_highest_all_that_a_request_may_hold_has_to_fit(kv_tokens, starts):
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
    assert one.margin is None


def test_the_larger_theta_is_the_fewer_start() -> None:
    spread, counts = spread_lengths(0.02), []
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
    first = one._survival_table
    one.fitting(requests(3, outputs=8), requests(110), 600, MODEL)
    assert one._survival_table is first
    one.fitting(requests(3, outputs=90), requests(110), 600, MODEL)
    assert one._survival_table is not first  # older than any that it has a row for
    second = one._survival_table
    for _ in range(64):
        one.stepped()
    one.fitting(requests(0), requests(110), 0, MODEL)
    assert one._survival_table is not second  # lengths were brought up to date


@pytest.mark.parametrize(("told", "double"), [(True, False), (False, True)])
def test_a_preempted_request_that_is_not_asked_for_counts_once(told: bool, double: bool) -> None:
    # It waits all the time, and is asked for every other time: its tokens are no news.
    admission = knowing(600, 20_000, n=20)
    old, new = requests(1, outputs=500), requests(1)
    for asked in [old, new] * 20:
        waiting = old.outputs if told else None
        admission.fitting(requests(2, outputs=5), asked, 300, MODEL, waiting=waiting)
        for _ in range(8):
            admission.stepped()
    at_risk = admission.lengths.pooled().at_risk
    assert (at_risk[length_bin(400)] > 20 + 1) == double


def rows(
    n: int, prompt: int = 90, outputs: int = 10, most: int = 4000, shared: int = 0
) -> Requests:
    """n alike, of which all is computed."""
    computed = prompt + outputs
    return requests_of([computed] * n, [prompt] * n, [outputs] * n, [most] * n, [shared] * n)


def fit(
    one: MemoryAdmission, running: Requests, candidates: Requests, kv_used: int
) -> tuple[int, Forecast | None]:
    return one.fitting(running, candidates, kv_used, MODEL)


@pytest.mark.parametrize(
    ("shared", "used", "kv_tokens", "asked"),
    [
        # Two of 100 that may generate 50 more, three of 40 that may generate 20; a block for each.
        (0, 200, 560, False),
        (0, 200, 559, True),
        # Two that hold 40 alone and 60 together: a prefix in memory counts once.
        (60, 40 + 40 + 16 + 60, 500, False),
        (60, 40 + 40 + 16 + 60, 499, True),
    ],
)
def test_nothing_is_forecast_where_all_that_may_be_generated_fits_in_whole_blocks(
    shared: int, used: int, kv_tokens: int, asked: bool
) -> None:
    running, waiting = rows(2, most=60, shared=shared), rows(3, prompt=40, outputs=0, most=20)
    fitting, together = fit(MemoryAdmission(kv_tokens, 16, 0.02), running, waiting, used)
    assert (together is not None) is asked
    assert asked or fitting == 3


@pytest.mark.parametrize("allowed", [1, 2])
def test_a_request_of_a_token_or_two_starts_where_its_prompt_fits(allowed: int) -> None:
    # 50 that hold 100 and go on for long; the first in the queue ends at once.
    running = rows(50)
    short = requests_of([0] * 3, [300] * 3, [0] * 3, [allowed] * 3, [0] * 3)
    one = MemoryAdmission(7_000, 16, None)
    fitting, together = fit(one, running, short, 5_000)
    assert together is not None
    assert fitting == 3


def test_where_no_kv_is_kept_nobody_waits_for_memory() -> None:
    waiting = rows(3, prompt=40, outputs=0, most=1)
    assert fit(MemoryAdmission(0, 16, 0.02), rows(2), waiting, 0) == (3, None)
    assert fit(MemoryAdmission(0, 16, 0.02), rows(0), waiting, 0) == (3, None)
