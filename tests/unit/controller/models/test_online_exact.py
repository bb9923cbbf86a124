"""The online step-time fit against numpy, and before anything was seen."""

import math
from dataclasses import replace

import numpy as np
import pytest

from controller.models.online import OnlineStepModel, guess, prefill_room
from controller.models.step_time import StepModel

SCALE = np.array([1, 100, 100_000, 1000, 1_000_000])
PRIOR = StepModel(0.02, 2e-4, 1e-7, 1e-4, 1e-8, 0.003)
# Off the prior by less than what counts as an outlier; no coefficient comes out negative.
TRUE = StepModel(0.021, 2.1e-4, 1.05e-7, 1.05e-4, 1.05e-8, 0.0)
Row = tuple[int, int, int, int, float]


def coefficients(model: StepModel) -> list[float]:
    return [model.c0, model.c1, model.c2, model.c3, model.c4]


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
    """(A + R) theta = b + R theta0, each step forgotten by 2% at the next."""
    a, b, n = np.zeros((5, 5)), np.zeros(5), 0.0
    for *features, took_s in seen:
        v = np.array([1, *features]) / SCALE
        a, b, n = 0.98 * a + np.outer(v, v), 0.98 * b + v * took_s, 0.98 * n + 1
    ridge = np.diag(weight * (np.diag(a) / max(n, 1) + 1e-6))
    theta0 = np.array(coefficients(prior)) * SCALE
    return list(np.linalg.solve(a + ridge, b + ridge @ theta0) / SCALE)


@pytest.mark.parametrize("n", [8, 16, 80])
def test_it_is_the_forgetting_fit_shrunk_by_a_fifth_of_a_step_to_the_guess(n: int) -> None:
    online = OnlineStepModel(PRIOR)
    for row in rows(n):
        online.learn(*row)
    assert coefficients(online.model) == pytest.approx(by_hand(rows(n), PRIOR, 0.2), rel=1e-6)
    assert online.model.sigma_s == 0.003


def test_the_groups_model_weighs_five_steps() -> None:
    online = OnlineStepModel(guess(0.05))
    online.believe(PRIOR)
    assert online.prior == PRIOR
    for row in rows(24):
        online.learn(*row)
    assert coefficients(online.model) == pytest.approx(by_hand(rows(24), PRIOR, 5.0), rel=1e-6)


def test_another_prior_is_believed_at_once_and_what_was_seen_stays() -> None:
    online = OnlineStepModel(PRIOR)
    for row in rows(16):
        online.learn(*row)
    online.believe(TRUE)
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


def test_a_coefficient_that_comes_out_negative_is_zero_and_the_others_are_fitted_without_it() -> (
    None
):
    # Faster with every prompt token: no such machine. c3 and perhaps others go.
    odd = StepModel(0.02, 2e-4, 1e-7, -2e-5, 0.0, 0.0)
    online = OnlineStepModel(PRIOR, weight_steps=1e-3)
    for row in rows(160, odd):
        online.learn(*row)
    found = coefficients(online.model)
    assert min(found) >= 0
    assert found[3] == 0
    errors = [online.model.predict_s(*f) / took_s - 1 for *f, took_s in rows(160, odd)]
    assert max(map(abs, errors)) < 0.06


def test_the_guess_is_half_of_the_sla_for_an_empty_step_and_the_rest_for_256_decodes() -> None:
    assert coefficients(guess(0.1)) == pytest.approx([0.05, 0.1 / 512, 0.0, 0.1 / 1024, 0.0])
    assert guess(0.1).sigma_s == pytest.approx(0.005)
    assert guess(0.1).predict_s(256, 0, 0, 0) == pytest.approx(0.1)
    assert guess(0.1).predict_s(0, 0, 512, 0) == pytest.approx(0.1)


def test_the_room_for_prompts_solves_the_quadratic() -> None:
    # 30 ms are left: 1e-4 P + 1e-8 (1000 P + P^2 / 2) = 0.03
    free = StepModel(0.02, 0.0, 0.0, 1e-4, 1e-8, 0.0)
    linear = 1e-4 + 1e-5
    expected = (-linear + math.sqrt(linear**2 + 2 * 1e-8 * 0.03)) / 1e-8
    assert prefill_room(free, 5, 0, 1000, 0.05) == pytest.approx(expected)


def test_where_there_is_no_room_it_is_what_is_missing_in_prompt_tokens() -> None:
    free = StepModel(0.02, 1e-3, 0.0, 1e-4, 1e-8, 0.0)
    assert prefill_room(free, 40, 0, 1000, 0.05) == pytest.approx(-0.01 / (1e-4 + 1e-5))
    assert prefill_room(free, 30, 0, 1000, 0.05) == 0


def test_the_tail_is_the_priors_until_it_was_measured_here() -> None:
    online = OnlineStepModel(replace(PRIOR, tail_frac=0.2))
    assert online.model.tail_frac == 0.2
    online.tail_frac = 0.1
    for row in rows(8):
        online.learn(*row)
    assert online.model.tail_frac == 0.1
