"""The lab with a tiny model and runs of seconds, and its replays."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from tqdm import tqdm
from vllm import SamplingParams

from benchmarks.engine_lab.hog import Hog
from benchmarks.engine_lab.lab import Lab
from benchmarks.engine_lab.replays import run
from benchmarks.engine_lab.results import Results
from benchmarks.engine_lab.step_log import StepLog
from benchmarks.engine_lab.tasks import BesideTask, EngineTask, Ground, Limits
from replicas.engine.step_recorder import StepRecorder
from tests.vllm.engines import engine, generate, scheduler

GROUND = Ground("tiny", None, 130.0, 30.0, 5.0, search_s=40.0)
STATIC = EngineTask(GROUND, 0.5, 1, False, Limits(32, 40))
LINE = {"fixed_ms": 30, "ms_per_decode": 1.5, "ms_per_prefill_token": 1.5}


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "line.json"
    lines = {"line": {**LINE, "kv_capacity_tokens": 40_000}}
    path.write_text(json.dumps({"source": "a test", "lines": lines}))
    return path


def test_a_run_in_the_replay_is_that_of_its_limits(profile: Path) -> None:
    off, on = (
        replace(STATIC, limits=Limits()),
        replace(STATIC, adaptive=True, limits=Limits(64, 2048)),
    )
    whole, chunked, ours = run(BesideTask((off, STATIC, on)), profile)
    assert whole["longest_ms"] > 900  # two prompts of 300 tokens in one step
    assert chunked["late_frac"] == 0
    assert ours["late_frac"] < 0.01 < whole["late_frac"]
    assert whole["tokens_per_s"] == pytest.approx(ours["tokens_per_s"], rel=0.2)


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_runs_of_a_real_engine_are_made_once_and_replayed(tiny_llama: Path, tmp_path: Path) -> None:
    ground = Ground(tiny_llama.name, Hog(0.004, 0.004), 200.0, 5.0, 1.0)
    off = EngineTask(ground, 2.0, 1, False, Limits())
    on = EngineTask(ground, 2.0, 1, True, Limits(64, 2048))
    results, bar = tmp_path / "results.jsonl", tqdm(file=StringIO())
    with Lab(0, tiny_llama, Results(results), tmp_path / "steps", bar) as lab:
        made = [lab.do(task) for task in (off, on)]
        again = [lab.do(task) for task in (off, on)]
        beside = lab.do(BesideTask((off, on)))
    assert again == made
    assert len(results.read_text().splitlines()) == 3
    for found in made:
        assert found["steps"] > 100
        assert 0 < found["hog_frac"] < 1
        assert found["figures"]["tokens_per_s"] > 0
    assert [sorted(one) for one in beside] == [sorted(found["figures"]) for found in made]
    elsewhere = tmp_path / "elsewhere"
    with Lab(0, tiny_llama, Results(None), elsewhere, bar) as lab:
        assert lab.do(BesideTask((off, on))) is None  # no steps are kept there


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_a_log_holds_the_steps_that_a_recorder_does(tiny_llama: Path) -> None:
    with engine(tiny_llama, ours=True) as llm:
        log, recorder = StepLog(scheduler(llm)), StepRecorder(scheduler(llm))
        params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
        generate(llm, ["the river " * 20, "a jar", "the brim of a jar"], params)
        logged, recorded = log.steps(), recorder.drain()
    assert log.count() == len(recorded["decodes"]) >= 12
    for name in recorded.keys() - {"duration_us"}:  # of clocks read a moment apart
        assert logged[name] == recorded[name], name
