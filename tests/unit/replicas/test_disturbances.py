"""What disturbs steps: each kind by its arithmetic, its share and its seed."""

from dataclasses import replace

import numpy as np
import pytest

from replicas.profiles.disturbances import (
    Disturbances,
    DisturbedSteps,
    EncoderWork,
    Pauses,
    SlowPhases,
)
from replicas.profiles.profile import LinearCost, StepProfile

PROFILE = StepProfile("p", "", 10_000, 256, 2048, LinearCost(0.010, 0.001, 1e-6, 1e-4, 1e-8))
EVERYTHING = Disturbances(
    noise_cv=0.2,
    pauses=(Pauses(0.1, 0.03), Pauses(0.01, 0.5)),
    slow=(SlowPhases(0.2, 2.0, 1.0),),
    encoder=EncoderWork(0.3, 0.08),
    mixed_s=0.003,
    graph_sizes=(1, 2, 4, 8),
)


def steps_s(disturbances: Disturbances, n: int = 20_000, seed: int = 1) -> np.ndarray:
    """Steps of two decodes that follow each other; undisturbed, each takes 12 ms."""
    steps, now_s, found = DisturbedSteps(PROFILE, disturbances, seed), 0.0, []
    for _ in range(n):
        found.append(steps.step_s(2, 0, 0, 0, now_s))
        now_s += found[-1]
    return np.array(found)


def test_steps_that_begin_outside_of_the_time_of_the_disturbances_are_as_the_profile_says() -> None:
    for_a_while = replace(EVERYTHING, noise_cv=0.0, pauses=(), begin_s=5.0, until_s=9.0)
    steps = DisturbedSteps(PROFILE, for_a_while, 0)
    usual_s, padded_s = PROFILE.step_s(3, 400, 0, 0), PROFILE.step_s(4, 400, 0, 0)
    assert [steps.step_s(3, 400, 0, 0, at_s) for at_s in (0.0, 4.999, 9.0, 50.0)] == [usual_s] * 4
    assert steps.step_s(3, 400, 0, 0, 5.0) in (padded_s, 2 * padded_s)


def test_a_share_of_the_steps_is_longer_by_an_exponential_pause() -> None:
    pauses_s = steps_s(Disturbances(pauses=(Pauses(0.05, 0.03),))) - 0.012
    paused_s = pauses_s[pauses_s > 1e-9]
    assert len(paused_s) / len(pauses_s) == pytest.approx(0.05, rel=0.1)
    assert paused_s.mean() == pytest.approx(0.03, rel=0.1)
    assert np.median(paused_s) == pytest.approx(0.03 * np.log(2), rel=0.1)


def test_a_share_of_the_time_is_slow_in_phases_of_this_mean() -> None:
    found_s = steps_s(Disturbances(slow=(SlowPhases(0.25, 1.7, 2.0),)), 500_000)
    slow = found_s > 0.013
    assert set(np.round(found_s, 9)) == {0.012, 0.0204}
    assert found_s[slow].sum() / found_s.sum() == pytest.approx(0.25, rel=0.1)
    phases = (np.diff(slow.astype(int)) == 1).sum()
    assert found_s[slow].sum() / phases == pytest.approx(2.0, rel=0.15)


def test_an_image_makes_the_first_step_of_its_request_longer() -> None:
    image = Disturbances(encoder=EncoderWork(0.3, 0.08))
    steps = DisturbedSteps(PROFILE, image, 0)
    first_s = np.array([steps.step_s(0, 0, 100, 0, 0.0, [str(k)]) for k in range(2000)]) - 0.020
    assert set(np.round(first_s, 9)) == {0.0, 0.08}
    assert (first_s > 0.07).mean() == pytest.approx(0.3, abs=0.03)
    # By the request and not by the order in which a policy starts them.
    backwards = [steps.step_s(0, 0, 100, 0, 0.0, [str(k)]) - 0.020 for k in reversed(range(2000))]
    assert backwards[::-1] == first_s.tolist()
    together_s = steps.step_s(0, 0, 100, 0, 0.0, [str(k) for k in range(2000)]) - 0.020
    assert together_s == pytest.approx(first_s.sum())


def test_a_step_with_a_prompt_token_is_mixed() -> None:
    steps = DisturbedSteps(PROFILE, Disturbances(mixed_s=0.003), 0)
    assert steps.step_s(2, 0, 1, 0, 0.0) == pytest.approx(0.0151)
    assert steps.step_s(2, 0, 0, 0, 0.0) == pytest.approx(0.012)
    assert steps.step_s(2, 0, 0, 0, 0.0, drafts=10) == pytest.approx(0.013)


@pytest.mark.parametrize(
    ("decodes", "drafts", "padded"),
    [(1, 0, 1), (3, 0, 4), (8, 0, 8), (9, 0, 9), (3, 3, 5), (2, 6, 2)],
)
def test_decodes_alone_are_padded_to_the_next_size_and_not_beyond_the_last(decodes, drafts, padded):
    steps = DisturbedSteps(PROFILE, Disturbances(graph_sizes=(8, 1, 4, 2)), 0)
    alone_s = steps.step_s(decodes, 7, 0, 0, 0.0, drafts=drafts)
    assert alone_s == PROFILE.step_s(padded, 7, drafts, 0)
    assert steps.step_s(decodes, 7, 30, 0, 0.0) == PROFILE.step_s(decodes, 7, 30, 0)


def test_kinds_together_are_profile_mixed_and_encoder_times_factors_plus_pauses() -> None:
    together = Disturbances(
        0.0, (Pauses(1.0, 0.0),), (SlowPhases(1.0, 2.0, 1.0),), EncoderWork(1.0, 0.08), 0.003
    )
    steps = DisturbedSteps(PROFILE, together, 0)
    assert steps.step_s(0, 0, 100, 0, 5.0, ["a"]) == pytest.approx(2 * (0.020 + 0.003 + 0.08))
    paused = DisturbedSteps(PROFILE, Disturbances(pauses=(Pauses(1.0, 0.03),)), 0)
    more_s = paused.step_s(0, 0, 100, 0, 5.0) - 0.020
    paused = DisturbedSteps(
        PROFILE, Disturbances(pauses=(Pauses(1.0, 0.03),), slow=(SlowPhases(1.0, 2.0, 1.0),)), 0
    )
    assert paused.step_s(0, 0, 100, 0, 5.0) == pytest.approx(0.040 + more_s)


def test_a_seed_gives_the_same_steps_and_another_seed_others() -> None:
    assert steps_s(EVERYTHING, 500).tolist() == steps_s(EVERYTHING, 500).tolist()
    assert steps_s(EVERYTHING, 500, seed=2).tolist() != steps_s(EVERYTHING, 500).tolist()


def test_only_an_engines_first_step_compiles_its_kernels() -> None:
    steps = DisturbedSteps(PROFILE, Disturbances(first_step_s=18.0), 0)
    plain = DisturbedSteps(PROFILE, Disturbances(), 0).step_s(1, 100, 50, 0, 0.0)
    assert [steps.step_s(1, 100, 50, 0, now_s) for now_s in (0.0, 18.0)] == [18.0, plain]
