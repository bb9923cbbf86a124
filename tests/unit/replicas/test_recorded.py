"""Recorded steps: the line through them, and what a wrong file is told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.errors import ConfigError
from replicas.profiles.disturbances import Disturbances, DisturbedSteps, Pauses, SlowPhases
from replicas.profiles.profile import LinearCost, StepProfile
from replicas.profiles.profile_file import load_profile
from replicas.profiles.recorded import LEAST_STEPS

COST = LinearCost(0.033, 0.0015, 2e-6, 0.0012, 2e-7, 0.004)
NOTHING = Disturbances()


def recorded(disturbances: Disturbances, n: int = 5000, cost: LinearCost = COST) -> dict[str, Any]:
    """Columns of ``n`` steps of a batch that comes and goes, a third of them with a prompt."""
    rng, now_s = np.random.default_rng(0), 0.0
    steps = DisturbedSteps(StepProfile("", "", 1, 1, 1, cost), disturbances, 1)
    rows = []
    for decodes in np.clip(8 + np.cumsum(rng.normal(0, 0.7, n)), 1, 32).astype(int).tolist():
        prefill = int(rng.choice([0, 0, 0, 0, 32, 64]))
        context = prefill * int(rng.integers(0, 256)) + prefill * prefill // 2
        features = decodes, int(decodes * rng.uniform(80, 160)), prefill, context
        step_s = steps.step_s(*features, now_s)
        now_s += step_s
        rows.append((*features, round(step_s * 1e6)))
    names = "decodes", "kv_tokens", "prefill_tokens", "prefill_context", "duration_us"
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def write(path: Path, steps: dict[str, Any], **changes: Any) -> str:
    """A file with one recording, and its name."""
    entry = {
        "machine": "2 cores",
        "model": "small",
        "versions": {"vllm": "0.29.0"},
        "load": "64 in, 100 out",
        "kv_capacity_tokens": 40_000,
        "max_num_seqs": 48,
        "max_num_batched_tokens": 512,
        "steps": steps,
    }
    path.write_text(json.dumps({"source": "made up", "recordings": {"one": entry | changes}}))
    return str(path)


def loaded(path: Path, disturbances: Disturbances, **made: Any) -> StepProfile:
    return load_profile(write(path / "r.json", recorded(disturbances, **made)))


def errors(profile: StepProfile) -> tuple[float, float]:
    """Mean of predicted over true time of batches of a grid, and the largest deviation of it."""
    batches = [(b, 120 * b, p, 128 * p) for b in (1, 4, 8, 16, 24) for p in (0, 32, 64)]
    ratios = np.array([profile.step_s(*f) / COST.step_s(*f) for f in batches])
    return float(ratios.mean()), float(np.abs(ratios - 1).max())


def test_a_recordings_engine_is_the_one_that_was_recorded(tmp_path: Path) -> None:
    profile = loaded(tmp_path, NOTHING, n=LEAST_STEPS)
    assert (profile.name, profile.source) == ("one", "made up")
    assert (profile.kv_tokens, profile.max_num_seqs, profile.max_num_batched_tokens) == (
        40_000,
        48,
        512,
    )


def test_undisturbed_steps_are_fitted_exactly_and_replayed_as_predicted(tmp_path: Path) -> None:
    profile = loaded(tmp_path, NOTHING)
    _, most = errors(profile)
    assert most < 1e-4  # durations are rounded to microseconds
    steps = DisturbedSteps(profile, NOTHING, 0)
    for features in ((1, 100, 0, 0), (8, 900, 64, 9000), (30, 4000, 0, 0)):
        assert steps.step_s(*features, 0.0) == pytest.approx(COST.step_s(*features), rel=1e-3)


@pytest.mark.parametrize(
    ("disturbances", "bias", "most"),
    [
        (Disturbances(0.1), 0.01, 0.03),
        (Disturbances(0.3), 0.03, 0.08),
        # The mean step is 2.5% longer by them, and a line through the mean says so.
        (Disturbances(pauses=(Pauses(0.05, 0.03),)), 0.04, 0.08),
        # Of a few stalls that double the mean the line knows nothing.
        (Disturbances(pauses=(Pauses(0.002, 10.0),)), 0.01, 0.03),
    ],
)
def test_the_line_is_that_of_the_undisturbed_steps(tmp_path, disturbances, bias, most):
    mean, deviation = errors(loaded(tmp_path, disturbances))
    assert mean == pytest.approx(1, abs=bias)
    assert deviation < most


def test_of_what_was_never_recorded_nothing_is_made_up(tmp_path: Path) -> None:
    steps = recorded(NOTHING)
    steps |= {"decodes": [4] * 5000, "prefill_tokens": [0] * 5000, "prefill_context": [0] * 5000}
    steps |= {"kv_tokens": [0] * 5000, "duration_us": [40_000] * 5000}
    profile = load_profile(write(tmp_path / "r.json", steps))
    assert profile.step_s(4, 0, 0, 0) == pytest.approx(0.04)
    assert profile.step_s(9, 500, 100, 5000) == pytest.approx(0.04)


def test_few_prompts_that_came_whole_do_not_make_small_chunks_free(tmp_path: Path) -> None:
    steps = recorded(Disturbances(0.05), 300)
    rng = np.random.default_rng(3)
    prompts = [64 if k % 50 == 0 else 600 if k % 150 == 10 else 0 for k in range(300)]
    steps |= {"prefill_tokens": prompts, "prefill_context": [p * p // 2 for p in prompts]}
    durations_s = [0.045 + 0.0019 * p for p in prompts] * rng.normal(1, 0.05, 300)
    steps["duration_us"] = [round(s * 1e6) for s in durations_s]
    profile = load_profile(write(tmp_path / "r.json", steps))
    of_chunk_s = profile.step_s(8, 900, 24, 288) - profile.step_s(8, 900, 0, 0)
    assert of_chunk_s == pytest.approx(0.0019 * 24, rel=0.3)


@pytest.mark.parametrize(
    "disturbances",
    [
        Disturbances(0.2),
        Disturbances(pauses=(Pauses(0.05, 0.1),)),
        Disturbances(slow=(SlowPhases(0.2, 2.0, 3.0),)),
    ],
)
def test_replaying_the_recorded_steps_gives_their_times_again(tmp_path, disturbances):
    columns = recorded(disturbances, 20_000)
    steps = DisturbedSteps(load_profile(write(tmp_path / "r.json", columns)), NOTHING, 5)
    *features, duration_us = columns.values()
    again_s = np.array([steps.step_s(*row, 0.0) for row in zip(*features, strict=True)])
    measured_s = np.array(duration_us) * 1e-6
    assert again_s.sum() == pytest.approx(measured_s.sum(), rel=0.03)
    for percentile in (10, 50, 90, 95):
        as_recorded_s = np.percentile(measured_s, percentile)
        assert np.percentile(again_s, percentile) == pytest.approx(as_recorded_s, rel=0.1)


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("decodes", [1] * 49, "steps.decodes: [1, 1, 1"),
        ("decodes", [1] * 61, "decodes has 61 values for 60 of duration_us"),
        ("kv_tokens", [5] * 30 + [-1] * 30, "steps.kv_tokens[30]: -1 is not allowed"),
        ("duration_us", [1.5] * 60, "steps.duration_us[0]: 1.5 is not allowed"),
        ("durations", [1] * 60, "recordings.one.steps: unknown key 'durations'; did you mean"),
        ("prefill_tokens", None, "steps.prefill_tokens: None is not allowed"),
    ],
)
def test_a_wrong_column_is_named_once(tmp_path, column, values, says):
    path = write(tmp_path / "r.json", recorded(NOTHING, 60) | {column: values})
    with pytest.raises(ConfigError) as refused:
        load_profile(path)
    assert len(refused.value.problems) == 1
    assert str(refused.value).startswith(f"{path}:1: recordings.one.steps")
    assert says in str(refused.value)
