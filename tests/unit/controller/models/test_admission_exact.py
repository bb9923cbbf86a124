"""What admission takes of memory, number by number."""

import pytest

from controller.models.admission import Admission
from controller.models.lookahead import Forecast
from controller.models.requests import Requests, requests_of
from controller.models.step_time import StepModel

MODEL = StepModel(0.02, 2e-4, 1e-7, 1e-4, 0.0, 0.0)


def rows(
    n: int, prompt: int = 90, outputs: int = 10, most: int = 4000, shared: int = 0
) -> Requests:
    """n alike, of which all is computed."""
    computed = prompt + outputs
    return requests_of([computed] * n, [prompt] * n, [outputs] * n, [most] * n, [shared] * n)


def admission(kv_tokens: int = 10_000) -> Admission:
    return Admission(kv_tokens, 16, 0.02)


def fit(
    one: Admission, running: Requests, candidates: Requests, kv_used: int
) -> tuple[int, Forecast | None]:
    return one.fitting(running, candidates, kv_used, MODEL)


@pytest.mark.parametrize(
    ("kv_used", "frac", "common"),
    [
        (0, 1.0, 0.0),  # not measured
        (216, 0.5, 0.0),  # windows of attention
        (432, 1.0, 0.0),  # four of 100, and half a block each
    ],
)
def test_less_in_use_than_requests_hold_is_not_kept(
    kv_used: int, frac: float, common: float
) -> None:
    assert admission()._in_memory(rows(4), kv_used) == (frac, common)


@pytest.mark.parametrize(
    ("kv_used", "common"),
    [
        (192, 0.0),  # 40 each alone, and half a block
        (252, 60.0),  # one prefix for all four
        (312, 120.0),  # two of them
        (1000, 120.0),  # no fewer than two share one; the rest is not theirs
    ],
)
def test_more_in_use_is_shared_prefixes_by_two_requests_at_least(
    kv_used: int, common: float
) -> None:
    assert admission()._in_memory(rows(4, shared=60), kv_used) == (1.0, common)


@pytest.mark.parametrize(("kv_tokens", "asked"), [(560, False), (559, True)])
def test_nothing_is_forecast_where_all_that_may_be_said_fits_in_whole_blocks(
    kv_tokens: int, asked: bool
) -> None:
    # Two of 100 that may say 50 more, three of 40 that may say 20; a block for each.
    running, waiting = rows(2, most=60), rows(3, prompt=40, outputs=0, most=20)
    fitting, together = fit(admission(kv_tokens), running, waiting, 200)
    assert (together is not None) is asked
    assert asked or fitting == 3


@pytest.mark.parametrize(("kv_tokens", "asked"), [(500, False), (499, True)])
def test_a_prefix_in_memory_counts_once(kv_tokens: int, asked: bool) -> None:
    # Two that hold 40 alone and 60 together, and 50 more each; three as above.
    running, waiting = rows(2, most=60, shared=60), rows(3, prompt=40, outputs=0, most=20)
    _, together = fit(admission(kv_tokens), running, waiting, 40 + 40 + 16 + 60)
    assert (together is not None) is asked


def test_theta_moves_by_a_fifth_for_a_preemption_and_its_accepted_share_for_an_end() -> None:
    one = admission()
    assert one.theta == 1.0
    one.preempted()
    assert one.theta == pytest.approx(1.2)
    for _ in range(7):
        one.stepped()
    one.preempted()  # within 8 steps it has the same cause
    assert one.theta == pytest.approx(1.2)
    one.stepped()
    one.preempted()
    assert one.theta == pytest.approx(1.4)
    one.finished(10)
    assert one.theta == pytest.approx(1.4 - 0.2 * 0.02)


def refreshed(one: Admission, steps: int) -> list[int]:
    """At which steps what is known of lengths was brought up to date."""
    seen, last = [], one._survival
    for step in range(1, steps + 1):
        one.stepped()
        fit(one, rows(1), rows(1), 100)
        if one._survival is not last:
            seen.append(step)
            last = one._survival
    return seen


def test_lengths_are_brought_up_to_date_every_8_steps_and_every_64_once_they_are_known() -> None:
    one = admission()
    fit(one, rows(1), rows(1), 100)
    assert refreshed(one, 20) == [8, 16]
    for _ in range(100):
        one.finished(50)
    assert refreshed(one, 70) == [4, 68]  # so many new ones are due at the next eight


@pytest.mark.parametrize(("new", "due"), [(2, 64), (3, 8)])
def test_where_more_than_2_percent_of_the_ends_are_new_it_is_every_8_steps(
    new: int, due: int
) -> None:
    one = admission()
    for _ in range(100):
        one.finished(50)
    fit(one, rows(1), rows(1), 100)
    for _ in range(new):
        one.finished(50)
    assert refreshed(one, 64)[0] == due


@pytest.mark.parametrize("allowed", [1, 2])
def test_who_may_generate_no_more_than_a_token_or_two_starts_where_its_prompt_fits(
    allowed: int,
) -> None:
    # 50 that hold 100 and go on for long; the first in the queue ends at once.
    running = rows(50)
    short = requests_of([0] * 3, [300] * 3, [0] * 3, [allowed] * 3, [0] * 3)
    one = Admission(7_000, 16, None)
    fitting, together = fit(one, running, short, 5_000)
    assert together is not None
    assert fitting == 3
