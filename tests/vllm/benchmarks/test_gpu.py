"""What runs on a card, without one: its parts, and one engine of the tiny model on CPU."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu.control import Arm, Clock, arms, capacity
from benchmarks.gpu.engine import Engine, Size
from benchmarks.gpu.model import make_model, shape_of
from benchmarks.gpu.step_time import errors, fit_line, fit_table, held_out, profile_entry
from benchmarks.workloads.requests import Request
from controller.config import Sla, parse_batching
from controller.records import EngineState, StepSample
from replicas.profile_file import load_profile

TOKENS = (1, 8, 64, 512)


def steps(n: int = 300) -> list[StepSample]:
    """Steps of a card whose dense part is a table, and whose attention is linear."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(n):
        decodes, chunk = int(rng.integers(1, 65)), int(rng.choice([0, 32, 256, 448]))
        kv, context = decodes * int(rng.integers(50, 900)), chunk * int(rng.integers(20, 2000))
        dense = np.interp(decodes + chunk, TOKENS, (0.005, 0.006, 0.009, 0.040))
        took = dense + 1e-8 * kv + 2e-10 * context
        found.append(StepSample(decodes, kv, chunk, context, float(took)))
    return found


def test_a_table_is_found_again() -> None:
    dense, per_kv, per_context = fit_table(steps(), TOKENS)
    assert dense == pytest.approx((0.005, 0.006, 0.009, 0.040), rel=0.02)
    assert per_kv == pytest.approx(1e-8, rel=0.02)
    assert per_context == pytest.approx(2e-10, rel=0.02)


def test_the_profile_takes_the_time_that_was_measured(tmp_path: Path) -> None:
    model = make_model(tmp_path, tiny=True)
    card = {"gpu": "h100", "mem_gb": 80}
    entry = profile_entry(steps(), TOKENS, model, card, 40_000)
    path = tmp_path / "card.json"
    path.write_text(json.dumps({"source": "a test", "profiles": {"card": entry}}))
    profile = load_profile(f"{path}:card")
    fitted, judged = held_out(steps())
    assert not {id(s) for s in fitted} & {id(s) for s in judged}
    predicted = [
        profile.step_s(s.decodes, s.kv_tokens, s.prefill_tokens, s.prefill_context) for s in judged
    ]
    assert errors(predicted, judged)[1] < 2


def test_a_line_fits_a_line_and_says_how_far_off_it_is() -> None:
    straight = [
        StepSample(s.decodes, s.kv_tokens, s.prefill_tokens, s.prefill_context, took)
        for s in steps()
        for took in [0.01 + 1e-4 * s.decodes + 1e-8 * s.kv_tokens + 6e-5 * s.prefill_tokens]
    ]
    line = fit_line(straight)
    assert line.c1 == pytest.approx(1e-4, rel=0.02)
    assert line.sigma_s < 1e-5
    assert fit_line(steps()).sigma_s > 1e-4


@pytest.mark.parametrize("true_per_s", [0.3, 4.0, 19.0])
def test_capacity_is_found_to_a_tenth(true_per_s: float) -> None:
    found = capacity(lambda rate: rate <= true_per_s, 5.0, Clock(1e6), 1.0, "")
    assert found is not None
    assert true_per_s / 1.11 <= found <= true_per_s


def test_what_there_is_no_time_for_is_named() -> None:
    clock = Clock(0.0)
    assert capacity(lambda rate: True, 5.0, clock, 1.0, "azure capacity") is None
    assert clock.left_out == ["azure capacity"]


def test_the_8b_model_has_the_shape_it_is_named_for(tmp_path: Path) -> None:
    shape = shape_of(make_model(tmp_path, tiny=False))
    assert shape["kv_bytes_per_token"] == 128 * 1024
    assert shape["layers"] == 32


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_one_engine_serves_every_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    size = Size(16, 256, 1024, 0.1, enforce_eager=True, block_size=32)
    engine = Engine(make_model(tmp_path, tiny=True), size)
    requests = [Request(0.01 * k, 40, 12, 12) for k in range(12)]
    for arm in arms((8, 128)):
        engine.follow(arm.config(Sla(itl_ms=200)), cap=arm.cap, chunk=arm.chunk)
        run = engine.serve(requests, arm.name)
        assert not np.isnan(run.seen.ttft_s).any()
        assert len(run.seen.gap_s) == 12 * 11
        assert sum(s.prefill_tokens for s in run.samples) == 12 * 40
        assert len(run.own_us) == len(run.samples)
        assert max(s.decodes + s.prefill_tokens for s in run.samples) <= (arm.chunk or 256)
    # What may generate more than it will is ended by the client, and no policy knows when.
    engine.follow(Arm("adaptive", {"policy": "adaptive"}).config(Sla()))
    honest = engine.serve([replace(r, max_tokens=500) for r in requests], "honest")
    assert len(honest.seen.gap_s) == 12 * 11
    report = engine.scheduler.governor.report(EngineState(0, 0, 0), 0.0, "", "")
    assert report.finished == 12  # ended, not gone: their lengths are learned
    engine.keep_kv_free(256)
    assert engine.kv_tokens <= 256
    engine.follow(parse_batching({"policy": "static"}))
    tight = engine.serve([Request(0.0, 60, 60, 60)] * 6, "tight")
    assert tight.preemptions > 0
    assert not np.isnan(tight.seen.ttft_s).any()
    engine.keep_kv_free(None)
    assert engine.kv_tokens > 10_000
    # Whoever has not ended by the limit is aborted, and the engine is free for the next run.
    engine.follow(Arm("adaptive", {"policy": "adaptive"}).config(Sla()))
    cut = engine.serve([Request(0.0, 60, 900, 900)] * 4, "cut off", limit_s=0.3)
    assert cut.tokens_per_s > 0
    assert not engine.busy()
