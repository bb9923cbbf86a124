"""Step-time profiles: what a step costs, and what a wrong file is told."""

import json
from pathlib import Path

import numpy as np
import pytest

from controller.errors import ConfigError
from replicas.profiles.profile import StepNoise
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


def test_a_table_is_layers_times_linear_and_both_all_reduces_and_the_host(tmp_path: Path) -> None:
    profile = load_profile(str(write(tmp_path / "p.json")))
    assert profile.step_s(100, 0, 0, 0) == pytest.approx(0.001 * (10 * (0.2 + 0.1) + 2))


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


def test_noise_has_mean_one_its_coefficient_of_variation_and_its_seed() -> None:
    factors = np.array(
        [(noise := StepNoise(0.1, seed=3)).factor()] + [noise.factor() for _ in range(20_000)]
    )
    again = StepNoise(0.1, seed=3)
    assert factors.mean() == pytest.approx(1, abs=0.005)
    assert factors.std() == pytest.approx(0.1, rel=0.03)
    assert [again.factor() for _ in range(3)] == factors[:3].tolist()
    assert StepNoise(0, seed=3).factor() == 1


@pytest.mark.parametrize(
    ("changes", "line", "says"),
    [
        ({"layers": 0}, 6, "profiles.one.layers: 0 is not allowed"),
        ({"layers": "ten"}, 6, "profiles.one.layers: 'ten' is not allowed"),
        ({"hidden": None}, 4, "profiles.one.hidden: required key is missing"),
        ({"layer": 3}, 31, "profiles.one: unknown key 'layer'; did you mean 'layers'?"),
        ({"tokens": [1, 1, 2]}, 4, "tokens must ascend"),
        ({"linear_ms_per_layer": [1, 2]}, 4, "linear_ms_per_layer has 2 values for 3 tokens"),
        ({"linear_ms_per_layer": [1, -2, 3]}, 22, "linear_ms_per_layer[1]: -2 is not allowed"),
        ({"linear_ms_per_layer": [1, 2e6, 3]}, 22, "linear_ms_per_layer[1]: 2000000.0 is not"),
        ({"layers": True}, 6, "profiles.one.layers: True is not allowed: Input should be a number"),
    ],
)
def test_a_wrong_file_is_told_its_line_and_field(tmp_path, changes, line, says):
    path = write(tmp_path / "p.json", **changes)
    with pytest.raises(ConfigError) as caught:
        load_profile(str(path))
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert says in str(caught.value)


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'paper-fig3'"):
        load_profile("paper-fig4")


def test_a_file_of_several_needs_a_name(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"source": "", "profiles": {"a": TABLE, "b": TABLE}}))
    assert load_profile(f"{path}:b").name == "b"
    with pytest.raises(ConfigError, match="holds a, b; name one"):
        load_profile(str(path))
    with pytest.raises(ConfigError, match="unknown key 'c'"):
        load_profile(f"{path}:c")
