"""How many candidates pay, as if they were asked one at a time."""

import numpy as np
import pytest

from controller.models.batch_memory import BatchForecast, KvMemory
from controller.models.lookahead import SurvivalTable
from controller.models.price import first_passage, paying, pays, recompute_price, weight_of
from controller.models.requests import requests_of
from controller.models.step_time import StepModel
from controller.models.survival import BINS, Exposure, Survival, length_bin

# 20 ms, 0.2 ms a decode, 0.4 ms a prompt token: its price is well felt.
MODEL = StepModel(0.02, 2e-4, 1e-7, 4e-4, 1e-7, 0.0)
COUNTS = np.bincount([length_bin(length) for length in range(1, 400, 3)], minlength=BINS)
OUTLOOK = SurvivalTable(Survival(Exposure.of_finished(COUNTS)), 400)
ELSEWHERE = 500
PROMPTS = [300, 20, 700, 90, 1500, 10, 40, 260, 900, 35, 600, 150]
ALLOWED = [4000, 3, 900, 4000, 4000, 1, 4000, 60, 4000, 4000, 200, 4000]
N = len(PROMPTS)


def batch(kept: float = 1.0, n: int = N) -> BatchForecast:
    """30 that run, of 100 to 390 tokens, n candidates, and others that do not run.

    Args:
        kept: of all tokens, those that are kept in memory.
    """
    alone = list(range(100, 400, 10))
    half = [tokens // 2 for tokens in alone]
    running = requests_of(alone, half, half, [4000] * 30)
    waiting = requests_of([0] * N, PROMPTS, [0] * N, ALLOWED).first(n)
    used = int(kept * (sum(alone) + 30 * 8))
    memory = KvMemory(0, 16)
    base = memory.running_only(OUTLOOK, running, used + ELSEWHERE, ELSEWHERE)
    return memory.with_candidates(base, waiting)


def one_pays(one: BatchForecast, k: int, kv_tokens: int, running: int, alike: float) -> bool:
    """Whether candidate k gains more than it may lose, with all before it."""
    alive = one.together.alive[k] - (one.together.alive[k - 1] if k else one.running.base.alive)
    now = one.running.held + float(sum(one.holds[: k + 1]))
    mean, worst = one.together.mean[k] + ELSEWHERE, one.together.worst[k] + ELSEWHERE
    room = np.full(len(mean), kv_tokens - now)
    overflow = first_passage(room, mean - now, one.together.chance[k])
    overflow = np.where(worst <= kv_tokens, 0.0, overflow)
    again = one.recomputed[[k]]
    price = recompute_price(MODEL, np.array([running + k]), again)
    fits = np.array([now < kv_tokens])
    weight = weight_of(alike)
    return bool(pays(fits, overflow[None], alive[None], again, OUTLOOK.ahead, price, weight)[0])


def one_by_one(one: BatchForecast, first: int, *how: float) -> int:
    kv_tokens, running, alike = how
    n = len(one.holds)
    waits = (
        k for k in range(first, n) if not one_pays(one, k, int(kv_tokens), int(running), alike)
    )
    return next(waits, n)


@pytest.mark.parametrize("alike", [0.01, 0.2])
@pytest.mark.parametrize("running", [0, 3, 30, 200])
@pytest.mark.parametrize("kept", [1.0, 0.3])
def test_as_many_pay_as_where_they_are_asked_one_at_a_time(kept, running, alike):
    one, found = batch(kept), set()
    for kv_tokens in range(500, 16_000, 300):
        for first in (0, 1, 3, 8):
            n = paying(one, kv_tokens, running, MODEL, alike, first)
            assert n == one_by_one(one, first, kv_tokens, running, alike), (kv_tokens, first)
            found.add(n)
    assert {0, 1, 3, 8, N} < found


@pytest.mark.parametrize("n", [1, 2, 8, 9])
def test_fewer_candidates_than_are_asked_at_once_all_pay_where_there_is_room(n: int) -> None:
    assert paying(batch(n=n), 10**6, 30, MODEL, 0.2) == n
    assert paying(batch(n=n), 10**6, 30, MODEL, 0.2, first=1) == n
    assert paying(batch(n=n), 100, 30, MODEL, 0.2) == 0
