"""How long steps take: profiles, recordings, disturbances."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.errors import ConfigError
from replicas.profiles.disturbances import (
    Disturbances,
    DisturbedSteps,
    EncoderWork,
    Pauses,
    SlowPhases,
)
from replicas.profiles.profile import LinearCost, StepProfile
from replicas.profiles.profile_file import load_profile

TABLE = {
    "gpu": "h100",
    "layers": 10,
    "hidden": 100,
    "kv_heads": 1,
    "head_dim": 10,
    "hbm_gb_per_s": 1000,
    "mem_gb": 80,
    "bf16_tflops": 100,
    "kv_bytes_per_token": 3000,
    "kv_capacity_tokens": 50_000,
    "tokens": [1, 100, 200],
    "linear_ms_per_layer": [0.1, 0.2, 0.4],
    "all_reduce_ms_per_layer": [0.0, 0.1, 0.2],
    "host_ms": 2,
}


def write(path: Path, **changes: object) -> Path:
    """A file with one table, ``TABLE`` with these changes, a line per key."""
    entry = {key: value for key, value in (TABLE | changes).items() if value is not None}
    text = json.dumps({"source": "made up", "profiles": {"one": entry}}, indent=0)
    path.write_text(text)
    return path


def test_paper_fig3_is_the_line_of_the_papers_figure() -> None:
    profile = load_profile("paper-fig3")
    assert profile.step_s(100, 30_000, 0, 0) == pytest.approx(0.050, rel=0.001)
    assert profile.step_s(230, 90_000, 0, 0) == pytest.approx(0.080, rel=0.001)
    assert profile.step_s(0, 0, 1000, 5e5) == pytest.approx(0.0269 + 0.120)


@pytest.mark.parametrize(("decodes", "prefill", "ms"), [(50, 100, 6.5), (0, 400, 14), (1, 0, 3)])
def test_a_table_is_interpolated_by_all_tokens_and_goes_on_beyond_its_end(
    tmp_path: Path, decodes: int, prefill: int, ms: float
) -> None:
    # 10 layers and 2 ms: 3 ms at 1 token, 5 at 100, 8 at 200.
    profile = load_profile(str(write(tmp_path / "p.json")))
    assert profile.step_s(decodes, 0, prefill, 0) == pytest.approx(ms / 1000)


def test_attention_costs_bytes_over_bandwidth_and_flops_over_rate(tmp_path: Path) -> None:
    two = load_profile(str(write(tmp_path / "p.json", tensor_parallel=2)))
    bare_s = two.step_s(1, 0, 0, 0)
    assert two.step_s(1, 10_000, 0, 0) - bare_s == pytest.approx(10_000 * 3000 / (2 * 0.75e12))
    assert two.step_s(1, 0, 0, 1e6) - bare_s == pytest.approx(4 * 100 * 10 * 1e6 / (2 * 0.5e14))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"layers": 0}, "profiles.one.layers: 0 is not allowed"),
        ({"layers": "ten"}, "profiles.one.layers: 'ten' is not allowed"),
        ({"hidden": None}, "profiles.one.hidden: required key is missing"),
        ({"layer": 3}, "profiles.one: unknown key 'layer'; did you mean 'layers'?"),
        ({"tokens": [1, 1, 2]}, "tokens must ascend"),
        ({"linear_ms_per_layer": [1, 2]}, "linear_ms_per_layer has 2 values for 3 tokens"),
        ({"linear_ms_per_layer": [1, -2, 3]}, "linear_ms_per_layer[1]: -2 is not allowed"),
        ({"linear_ms_per_layer": [1, 2e6, 3]}, "linear_ms_per_layer[1]: 2000000.0 is not"),
        ({"layers": True}, "profiles.one.layers: True is not allowed: Input should be a number"),
    ],
)
def test_a_wrong_file_is_told_its_field(tmp_path, changes, says):
    path = write(tmp_path / "p.json", **changes)
    with pytest.raises(ConfigError) as caught:
        load_profile(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert says in str(caught.value)


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


def write_recording(path: Path, steps: dict[str, Any], **changes: Any) -> str:
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
    return load_profile(write_recording(path / "r.json", recorded(disturbances, **made)))


def errors(profile: StepProfile) -> tuple[float, float]:
    """Mean of predicted over true time of batches of a grid, and its largest deviation."""
    batches = [(b, 120 * b, p, 128 * p) for b in (1, 4, 8, 16, 24) for p in (0, 32, 64)]
    ratios = np.array([profile.step_s(*f) / COST.step_s(*f) for f in batches])
    return float(ratios.mean()), float(np.abs(ratios - 1).max())


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
    steps = DisturbedSteps(load_profile(write_recording(tmp_path / "r.json", columns)), NOTHING, 5)
    *features, duration_us = columns.values()
    again_s = np.array([steps.step_s(*row, 0.0) for row in zip(*features, strict=True)])
    measured_s = np.array(duration_us) * 1e-6
    assert again_s.sum() == pytest.approx(measured_s.sum(), rel=0.03)
    for percentile in (10, 50, 90, 95):
        as_recorded_s = np.percentile(measured_s, percentile)
        assert np.percentile(again_s, percentile) == pytest.approx(as_recorded_s, rel=0.1)


PROFILE = StepProfile("p", "", 10_000, 256, 2048, LinearCost(0.010, 0.001, 1e-6, 1e-4, 1e-8))


def steps_s(disturbances: Disturbances, n: int = 20_000, seed: int = 1) -> np.ndarray:
    """Steps of two decodes that follow each other; undisturbed, each takes 12 ms."""
    steps, now_s, found = DisturbedSteps(PROFILE, disturbances, seed), 0.0, []
    for _ in range(n):
        found.append(steps.step_s(2, 0, 0, 0, now_s))
        now_s += found[-1]
    return np.array(found)


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
