"""`brimful plan`: fluid arithmetic by hand, what it prints and writes, what is wrong with it."""

import json
from pathlib import Path

import pytest
import yaml

from replicas.profiles.profile import LinearCost, StepProfile
from serve_app.cli import main
from simulator.plan.carried import divided, largest_batch
from simulator.workloads.requests import LengthStats

# 27 ms + 0.23 ms a decode + 0.12 ms a prompt token: arXiv 2503.05248, figure 3.
PAPER = StepProfile("", "", 10**8, 100_000, 2048, LinearCost(0.027, 0.00023, 0, 0.00012))
LENGTHS = LengthStats(257, 62, 288, 128.5)
ITL_S = 0.05


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["plan", *args]) == 0
    return capsys.readouterr().out


def test_engines_of_each_kind_in_balance() -> None:
    found = divided(PAPER, LENGTHS, ITL_S)
    # A decode engine has (50 - 27) / 0.23 = 100 decodes a step; a request is 61 of them.
    assert found.decode_per_s == pytest.approx(100 / 0.05 / 61, rel=0.01)
    assert found.prefill_per_s == pytest.approx(2048 / (0.027 + 2048 * 0.00012) / 257)
    assert found.per_engine_s * (1 + found.prefill_per_decode) == pytest.approx(found.decode_per_s)
    assert found.gain == pytest.approx(1.5, rel=0.03)


def test_the_batch_of_a_step() -> None:
    assert largest_batch(PAPER, LENGTHS, ITL_S, prompts=False) == pytest.approx(100, rel=0.01)
    with_prompts = 23 / (0.23 + 0.12 * 257 / 61)
    assert largest_batch(PAPER, LENGTHS, ITL_S, prompts=True) == pytest.approx(with_prompts)
    assert largest_batch(PAPER, LENGTHS, 0.02, prompts=False) == 0


def test_json_has_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    args = ("deepseek-v3", "--gpu", "H200", "--rate", "50", "--price", "4", "--json")
    found = json.loads(printed(capsys, *args))
    assert found["tensor_parallel"] == 8
    assert found["kv_bytes_per_token_per_gpu"] == 61 * 576 * 2
    per_hour = found["capacity_per_s"] * found["lengths"]["mean_output"] * 3600
    assert found["cost_per_million_output_tokens"] == pytest.approx(8 * 4 / per_hour * 1e6)
    assert found["demand"]["replicas"] == -(-50 // found["capacity_per_s"])


def test_an_sla_out_of_reach_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "llama-3.1-8b", "--itl", "5", "--rate", "5", "--price", "1", "--explain")
    assert "no step of one request takes 5 ms" in text
    assert "no step keeps 5 ms" in text


@pytest.mark.parametrize(
    ("model", "extra"),
    [
        ("Llama-3.1-8B", ()),
        ("gpt-oss-20b", ("--kv-cache-dtype", "fp8")),
        ("deepseek-ai/DeepSeek-V3@rev", ()),
        ("llama-3.1-8b", ("--profile", "a100-Meta-Llama-3-8B-tp1")),
    ],
)
def test_what_it_writes_is_a_serve_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, extra: tuple[str, ...]
) -> None:
    path = tmp_path / "serve.yaml"
    printed(capsys, model, "--gpu", "H200", "--write", str(path), *extra)
    written = yaml.safe_load(path.read_text())
    entry = written["applications"][0]["args"]["llm_configs"][0]
    assert ("kv_cache_dtype" in entry["engine_kwargs"]) == ("--kv-cache-dtype" in extra)
    source = entry["model_loading_config"]["model_source"]
    assert "/" in source and "@" not in source
    assert (entry["engine_kwargs"].get("revision") == "rev") == ("@" in model)
    assert main(["check", "--quick", str(path)]) == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("llama-3.1-8b", "--gpu", "H10"), "--gpu: unknown key 'H10'; did you mean 'H100'?"),
        (("llama-3.1-8b", "--day", "day-1"), "--day: 'day-1' is not allowed without --rate"),
        (
            ("llama-3.1-8b", "--day", "all", "--rate", "5"),
            "--day: 'all' is not allowed: it is 16 days; one",
        ),
        (
            ("llama-3.1-8b", "--max-model-len", "999999"),
            "--max-model-len: 999999 is not allowed: at most 131072, the model's",
        ),
        (("deepseek-v3", "--gpu", "L4"), "its weights are"),
        (("llama-3.1-8b", "--workload", "fixed:200000,9"), "a sequence has at most 131072"),
        (("llama-3.1-8b", "--kv-cache-dtype", "int3"), "--kv-cache-dtype: unknown key 'int3'"),
        (("llama-3.1-8b", "--write", "/nowhere/a.yaml"), "--write: /nowhere/a.yaml"),
    ],
)
def test_what_is_wrong_is_one_line(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str
) -> None:
    assert main(["plan", *args]) == 2
    assert message in capsys.readouterr().err
