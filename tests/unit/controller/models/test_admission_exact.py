"""What admission takes of memory, number by number."""

import pytest

from controller.models.admission import MemoryAdmission
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


def admission(kv_tokens: int = 10_000) -> MemoryAdmission:
    return MemoryAdmission(kv_tokens, 16, 0.02)


def fit(
    one: MemoryAdmission, running: Requests, candidates: Requests, kv_used: int
) -> tuple[int, Forecast | None]:
    return one.fitting(running, candidates, kv_used, MODEL)


@pytest.mark.parametrize(("kv_tokens", "asked"), [(560, False), (559, True)])
def test_nothing_is_forecast_where_all_that_may_be_generated_fits_in_whole_blocks(
    kv_tokens: int, asked: bool
) -> None:
    # Two of 100 that may generate 50 more, three of 40 that may generate 20; a block for each.
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


@pytest.mark.parametrize("allowed", [1, 2])
def test_a_request_of_a_token_or_two_starts_where_its_prompt_fits(allowed: int) -> None:
    # 50 that hold 100 and go on for long; the first in the queue ends at once.
    running = rows(50)
    short = requests_of([0] * 3, [300] * 3, [0] * 3, [allowed] * 3, [0] * 3)
    one = MemoryAdmission(7_000, 16, None)
    fitting, together = fit(one, running, short, 5_000)
    assert together is not None
    assert fitting == 3


def test_the_second_candidate_is_asked_whether_it_pays_as_well() -> None:
    # The first one takes what is left; the second would be preempted in its first step.
    running = rows(50)
    waiting = requests_of([0] * 2, [100, 5000], [0] * 2, [2, 4000], [0] * 2)
    assert fit(MemoryAdmission(7_000, 16, None), running, waiting, 5_000)[0] == 1


def test_where_no_kv_is_kept_nobody_waits_for_memory() -> None:
    waiting = rows(3, prompt=40, outputs=0, most=1)
    assert fit(admission(0), rows(2), waiting, 0) == (3, None)
    assert fit(admission(0), rows(0), waiting, 0) == (3, None)
