"""The online step-time fit against numpy, its changes of regime, and the room for prompts."""

import math
from dataclasses import replace

import numpy as np
import pytest

from controller.models.online import OnlineStepModel, guess, prefill_room
from controller.models.step_time import StepModel

SCALE = np.array([1, 100, 100_000, 1000, 1_000_000, 1])
PRIOR = StepModel(0.02, 2e-4, 1e-7, 1e-4, 1e-8, 0.003, mixed_s=0.002)
# Off the prior by less than what is clipped; no coefficient comes out negative.
TRUE = StepModel(0.021, 2.1e-4, 1.05e-7, 1.05e-4, 1.05e-8, 0.0, mixed_s=0.0021)
Row = tuple[int, int, int, int, float]


def coefficients(model: StepModel) -> list[float]:
    return list(model.costs)


def rows(n: int, true: StepModel = TRUE) -> list[Row]:
    rng = np.random.default_rng(1)
    out = []
    for _ in range(n):
        decodes, prefill = int(rng.integers(10, 60)), int(rng.integers(0, 100))
        kv, context = decodes * int(rng.integers(100, 400)), prefill * int(rng.integers(1, 200))
        features = decodes, kv, prefill, context
        out.append((*features, true.predict_s(*features)))
    return out


def by_hand(seen: list[Row], prior: StepModel, weight: float) -> list[float]:
    """(A + R) beta = b + R beta0, each step forgotten by 0.5% at the next."""
    a, b, n = np.zeros((6, 6)), np.zeros(6), 0.0
    for *features, took_s in seen:
        v = np.array([1, *features, features[2] > 0]) / SCALE
        a, b, n = 0.995 * a + np.outer(v, v), 0.995 * b + v * took_s, 0.995 * n + 1
    ridge = np.diag(weight * (np.diag(a) / max(n, 1) + 1e-6))
    theta0 = np.array(coefficients(prior)) * SCALE
    return list(np.linalg.solve(a + ridge, b + ridge @ theta0) / SCALE)


@pytest.mark.parametrize(
    ("n", "weight"), [(8, 0.2), (16, 0.2), (80, 0.2), (24, 5.0)], ids=lambda it: f"{it}"
)
def test_it_is_the_forgetting_fit_shrunk_by_so_many_steps_to_what_was_believed(n, weight):
    """A guess is worth a fifth of a step, the group's model five."""
    online = OnlineStepModel(PRIOR if weight < 1 else guess(0.05))
    if weight > 1:
        online.set_prior(PRIOR)
    assert online.prior == PRIOR
    for row in rows(n):
        online.learn(*row)
    assert coefficients(online.model) == pytest.approx(by_hand(rows(n), PRIOR, weight), rel=1e-6)
    assert online.model.sigma_s == 0.003


def test_another_prior_counts_at_once_and_what_was_seen_stays() -> None:
    online = OnlineStepModel(PRIOR)
    for row in rows(16):
        online.learn(*row)
    online.set_prior(TRUE)
    assert coefficients(online.model) == pytest.approx(by_hand(rows(16), TRUE, 5.0), rel=1e-6)


def test_it_is_fitted_anew_every_eighth_step() -> None:
    online = OnlineStepModel(PRIOR)
    assert coefficients(online.model) == pytest.approx(coefficients(PRIOR))
    changes, last = [], online.model
    for row in rows(24):
        online.learn(*row)
        changes.append(online.model != last)
        last = online.model
    assert [k for k, changed in enumerate(changes, 1) if changed] == [8, 16, 24]


def test_a_coefficient_that_comes_out_negative_is_zero_and_the_others_are_fitted_without_it():
    # Faster with every prompt token: no such machine. c3 and perhaps others go.
    odd = StepModel(0.02, 2e-4, 1e-7, -2e-5, 0.0, 0.0)
    online = OnlineStepModel(PRIOR)
    online.set_prior(PRIOR, 1e-3)
    for row in rows(160, odd):
        online.learn(*row)
    found = coefficients(online.model)
    assert min(found) >= 0
    assert found[3] == 0
    errors = [online.model.predict_s(*f) / took_s - 1 for *f, took_s in rows(160, odd)]
    assert max(map(abs, errors)) < 0.06


def test_the_guess_is_half_of_the_sla_for_an_empty_step_and_the_rest_for_256_decodes() -> None:
    assert coefficients(guess(0.1)) == pytest.approx([0.05, 0.1 / 512, 0.0, 0.1 / 1024, 0.0, 0.0])
    assert guess(0.1).sigma_s == pytest.approx(0.005)
    assert guess(0.1).predict_s(256, 0, 0, 0) == pytest.approx(0.1)
    assert guess(0.1).predict_s(0, 0, 512, 0) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("model", "decodes", "context", "limit_s", "tokens"),
    [
        (StepModel(0.02, 1e-3, 0.0, 1e-4, 1e-8, 0.0), 30, 1000, 0.05, 0.0),
        # Where there is none it is what is missing, in prompt tokens.
        (StepModel(0.02, 1e-3, 0.0, 1e-4, 1e-8, 0.0), 40, 1000, 0.05, -0.01 / (1e-4 + 1e-5)),
        # It is less by what any prompt takes.
        (StepModel(0.02, 0.0, 0.0, 1e-4, 0.0, 0.0, mixed_s=0.01), 5, 0, 0.05, 200),
        (StepModel(0.02, 2e-4, 0.0, 0.0, 0.0, 0.0), 50, 0, 0.05, math.inf),  # prompts cost nothing
        (StepModel(0.02, 2e-4, 0.0, 0.0, 0.0, 0.0), 200, 0, 0.05, -math.inf),
        # Attention costs next to nothing.
        *((StepModel(0.02, 2e-4, 0.0, 1e-4, c4, 0.0), 50, 1000, 0.05, 200)
          for c4 in (0.0, 1e-30, 1e-22, 1e-16)),
    ],
)  # fmt: skip
def test_the_room_for_prompts_by_hand(model, decodes, context, limit_s, tokens):
    assert prefill_room(model, decodes, 0, context, limit_s) == pytest.approx(tokens, rel=1e-6)


@pytest.mark.parametrize("context", [0, 5_000])
def test_the_room_for_prompts_is_what_the_model_says_it_takes(context: int) -> None:
    room = prefill_room(TRUE, 100, 50_000, context, 0.08)
    assert TRUE.predict_s(100, 50_000, room, room * (context + room / 2)) == pytest.approx(0.08)


def learned(seen: list[Row], pause_s: float = 0.0) -> OnlineStepModel:
    """With pauses from the 60th step on: before, what it is off by itself looks like one."""
    online = OnlineStepModel(PRIOR)
    for number, (*features, took_s) in enumerate(seen):
        paused = number >= 60 and number % 20 == 0
        online.learn(*features, took_s + pause_s * paused)
    return online


def off(online: OnlineStepModel, factor: float = 1.0) -> float:
    """The largest error of its predictions, relative."""
    return max(abs(online.model.predict_s(*f) / took_s / factor - 1) for *f, took_s in rows(50))


def test_pauses_are_no_part_of_what_a_step_takes() -> None:
    assert off(learned(rows(400), pause_s=1.0)) < 0.05


def test_one_that_every_other_step_has_is() -> None:
    online = OnlineStepModel(PRIOR)
    for number, (*features, took_s) in enumerate(rows(800)):
        online.learn(*features, took_s + 0.02 * (number % 2))
    errors = [online.model.predict_s(*f) - took_s for *f, took_s in rows(50)]
    assert np.mean(errors) == pytest.approx(0.01, rel=0.35)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_after_seven_steps_of_another_regime_it_predicts_that_one(factor: float) -> None:
    online = learned(rows(400))
    for *features, took_s in rows(12):
        online.learn(*features, factor * took_s)
    assert off(online, factor) < 0.05
    for *features, took_s in rows(12):
        online.learn(*features, took_s)
    assert off(online) < 0.05


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_group_that_knows_nothing_of_the_change_yet_does_not_undo_it(factor: float) -> None:
    online = learned(rows(400))
    for number, (*features, took_s) in enumerate(rows(40)):
        online.learn(*features, factor * took_s)
        if number >= 10:
            online.set_prior(replace(TRUE, sigma_s=1e-3 * number))
    assert off(online, factor) < 0.05


def test_it_does_not_where_all_steps_are_alike_either() -> None:
    online = OnlineStepModel(TRUE)
    alike = 255, 255 * 150, 100, 5000
    for factor in (*[1.0] * 200, *[2.0] * 40):
        online.learn(*alike, factor * TRUE.predict_s(*alike))
    online.set_prior(TRUE)
    # Nothing tells of which costs have changed: all.
    expected = [2 * cost for cost in TRUE.costs]
    assert coefficients(online.model) == pytest.approx(expected, rel=0.05)


def test_a_fit_that_is_wrong_for_one_kind_of_step_is_put_right_not_taken_for_a_regime() -> None:
    wrong = StepModel(0.01, 2e-4, 1e-7, 1e-4, 1e-8, 0.0, mixed_s=0.012)
    online = OnlineStepModel(wrong)
    online.set_prior(wrong, 5.0)
    for number, (decodes, kv, prefill, context, _) in enumerate(rows(600)):
        alone = number // 30 % 2 == 0  # in phases
        features = (decodes, kv, 0, 0) if alone else (decodes, kv, prefill + 1, context)
        online.learn(*features, TRUE.predict_s(*features))
    assert off(online) < 0.05


@pytest.mark.parametrize("duration_s", [0.0, 5e-324, 1e308])
@pytest.mark.parametrize("prior", [PRIOR, StepModel(5e-324, 0.0, 0.0, 0.0, 0.0, 0.0)])
def test_no_duration_is_an_error(prior: StepModel, duration_s: float) -> None:
    online = OnlineStepModel(prior)
    for _ in range(20):
        online.learn(0, 0, 0, 0, duration_s)
    assert online.model.c0 >= 0


def test_no_coefficient_is_negative_whatever_comes() -> None:
    rng, online = np.random.default_rng(3), OnlineStepModel(guess(0.05))
    for *features, _ in rows(400):
        online.learn(*features, float(rng.exponential(0.05)))
        assert all(0 <= cost < math.inf for cost in online.model.costs)
