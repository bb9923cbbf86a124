import numpy as np
import pytest

from controller.models.lengths import LengthMoments
from controller.models.newest_mix import ENDS, PROMPTS, NewestMix

ENDED = LengthMoments(100, 25_700, 6_200, 2 * 257**2 * 100, 2 * 62**2 * 100, 257 * 62 * 100)


def test_prompts_count_when_they_come() -> None:
    mix = NewestMix()
    for _ in range(PROMPTS - 1):
        mix.came(2048)
    assert mix.corrected(ENDED) == ENDED  # too few to tell
    mix.came(2048)
    now = mix.corrected(ENDED)
    assert (now.mean_input, now.mean_output) == (2048, 62)
    assert now.input_sq == 2048**2 * now.n
    assert now.cross / now.n == pytest.approx(2048 * 62, rel=1e-3)


def test_outputs_are_tokens_over_ends_of_the_last_seconds() -> None:
    mix = NewestMix()
    for _ in range(PROMPTS):
        mix.came(257)
    for k in range(200):  # 10 ends of 62 tokens each half second, then 2 of 447
        mix.reported("a", 620 * k, 10 * k, k / 2)
    assert mix.corrected(ENDED).mean_output == pytest.approx(62, rel=0.01)
    for k in range(ENDS):
        mix.reported("a", 620 * 199 + 894 * (k + 1), 1990 + 2 * (k + 1), 100 + k / 2)
    assert mix.corrected(ENDED).mean_output == pytest.approx(447, rel=0.01)


def test_a_new_mix_shows_before_its_mean_request_has_ended() -> None:
    """300 decodes at 20 tokens/s each: 62 tokens an answer, then 447, of exponential length."""
    rng, mix = np.random.default_rng(1), NewestMix()
    for _ in range(PROMPTS):
        mix.came(257)
    left = rng.exponential(62, 300)
    tokens = ended = 0
    found = {}
    for tick in range(160):
        mean = 62 if tick < 80 else 447
        left -= 10
        over = left <= 0
        left[over] = rng.exponential(mean, over.sum())
        tokens, ended = tokens + 3000, ended + int(over.sum())
        mix.reported("a", tokens, ended, tick / 2)
        found[tick - 80] = mix.corrected(ENDED).mean_output
    assert found[-1] == pytest.approx(62, rel=0.2)
    assert found[24] > 250  # 12 s after, where a mean answer takes 22


def test_an_engine_that_begins_anew_or_left_its_role_is_not_counted() -> None:
    mix = NewestMix()
    for _ in range(PROMPTS):
        mix.came(257)
    mix.reported("a", 1000, 100, 0.0)
    mix.reported("a", 10, 1, 1.0)  # restarted
    mix.forget("a")
    mix.reported("a", 900_000, 5000, 2.0)
    assert mix.corrected(ENDED).mean_output == 62
