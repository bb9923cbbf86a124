"""What runs on a card, without one: its parts, and the whole of it with the tiny model on CPU."""

import io
import json
import math
import os
import runpy
import struct
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu.budget import Budget
from benchmarks.gpu.engine import Engine, Size
from benchmarks.gpu.fit import (
    bound_by_card,
    errors,
    fit_launch,
    fit_table,
    held_out,
    profile_entry,
    write_profile,
)
from benchmarks.gpu.kept import read
from benchmarks.gpu.model import make_model, shape_of
from benchmarks.gpu.pack import move, pruned
from benchmarks.gpu.tuning import Row, Tuner, cost_of
from benchmarks.report.document import ROOT
from controller.config import parse_batching
from controller.records import EngineState, StepSample
from replicas.engine.governor import Governor
from replicas.profiles.profile import Launch
from replicas.profiles.profile_file import load_profile
from simulator.workloads.requests import Request

TOKENS = (1, 8, 64, 512)
ITL = {"sla": {"itl_ms": 200}}


def steps(n: int = 300) -> list[StepSample]:
    """Steps of a card whose dense part is a table, and whose attention is linear."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(n):
        decodes, chunk = int(rng.integers(1, 65)), int(rng.choice([0, 32, 256, 448]))
        kv, context = decodes * int(rng.integers(50, 900)), chunk * int(rng.integers(20, 2000))
        dense = np.interp(decodes + chunk, TOKENS, (0.005, 0.006, 0.009, 0.040))
        took = dense + 1e-8 * kv + 2e-10 * context + 0.002 * (chunk > 0)
        found.append(StepSample(decodes, kv, chunk, context, float(took)))
    return found


def test_a_table_is_found_again() -> None:
    cost = fit_table(steps(), TOKENS)
    assert cost.dense_s == pytest.approx((0.005, 0.006, 0.009, 0.040), rel=0.02)
    assert cost.per_kv_s == pytest.approx(1e-8, rel=0.02)
    assert cost.per_context_s == pytest.approx(2e-10, rel=0.02)
    assert cost.mixed_s == pytest.approx(0.002, rel=0.02)


def test_the_profile_takes_the_time_that_was_measured(tmp_path: Path) -> None:
    model, launch = make_model(tmp_path, tiny=True), Launch(0.010, 0.030, 512)
    fitted, judged = held_out(steps())
    assert not {id(s) for s in fitted} & {id(s) for s in judged}
    entry = profile_entry(
        fit_table(fitted, TOKENS), launch, model, {"gpu": "h100", "mem_gb": 80}, 40_000
    )
    profile = load_profile(write_profile(tmp_path / "card.json", "card", "a test", entry))
    assert errors(fit_table(fitted, TOKENS), judged)[1] < 2
    predicted = [profile.step_s(*s.features) for s in judged]
    assert predicted == pytest.approx([s.duration_s for s in judged], rel=0.02)
    assert profile.launch == launch
    assert profile.kv_tokens == 40_000


def test_a_launch_is_told_from_chunks_alone_and_what_it_hides_is_left_out() -> None:
    alone = [StepSample(16, 0, p, 0, s) for p, s in ((16, 0.010), (256, 0.0102), (480, 0.013))]
    beyond = [StepSample(16, 0, p, 0, s) for p, s in ((600, 0.027), (4000, 0.100))]
    launch = fit_launch([*alone, *beyond], 512)
    assert (launch.graph_s, launch.eager_s, launch.graph_tokens) == (0.010, 0.027, 512)
    assert fit_launch(alone, 512).eager_s == fit_launch(alone, 512).graph_s
    assert fit_launch([], 0) == Launch()
    decodes = StepSample(16, 0, 0, 0, 0.006)
    assert bound_by_card([decodes, *alone, *beyond], launch) == [decodes, alone[2], beyond[1]]


def test_what_there_is_no_time_for_is_named() -> None:
    now_s = [0.0]
    budget = Budget(10.0, lambda: now_s[0])
    part = budget.part(4.0)
    assert budget.room(10.0, "all")
    assert not part.room(5.0, "too long for its part")
    now_s[0] = 9.0
    assert part.left_s == 0
    assert not budget.room(1.5, "too late")
    assert budget.part(5.0).left_s == 1.0
    assert budget.left_out == ["too long for its part", "too late"]


def test_the_8b_model_has_the_shape_it_is_named_for(tmp_path: Path) -> None:
    shape = shape_of(make_model(tmp_path, tiny=False))
    assert shape["kv_bytes_per_token"] == 128 * 1024
    assert shape["layers"] == 32


def entry(kind: int, arch: int, code: bytes) -> bytes:
    """Device code for one architecture, as a library holds it."""
    head = struct.pack("<HHIQ", kind, 0x101, 64, len(code)) + bytes(12) + struct.pack("<I", arch)
    return head.ljust(64, b"\0") + code


def fatbin(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_device_code_of_other_architectures_becomes_zeros_and_nothing_else() -> None:
    both = fatbin(entry(2, 80, b"a" * 16), entry(2, 90, b"b" * 16), entry(1, 90, b"c" * 16))
    only_ptx = fatbin(entry(2, 80, b"d" * 16), entry(1, 80, b"e" * 16))
    library = b"host code" + both + bytes(8) + only_ptx + b"more"
    left = pruned(library, [(9, len(both) + 8 + len(only_ptx))], 90)
    expected = library
    for gone in (b"a", b"c", b"d"):
        expected = expected.replace(gone * 16, bytes(16))
    assert left == expected


def test_the_best_limits_are_those_of_the_shortest_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("paper-fig3", "fixed:64,16", math.inf, None, 40)
    costs = {limits: cost_of(row, limits) for limits in ((4, 256), (64, 256))}
    assert costs[64, 256] < costs[4, 256]
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: None)
    tuner = Tuner()
    try:
        tuner.ask(row, [(4, 256), (64, 256), (64, 32)])  # vLLM does not start with the last one
        assert tuner.best(row, 2, 240.0) == [(64, 256), (4, 256)]
        assert tuner.best(replace(row), 1, 0.0) == [(64, 256)]
    finally:
        tuner.close()


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_one_engine_serves_every_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    size = Size(16, 256, 1024, 0.1, enforce_eager=True, block_size=32)
    engine = Engine(make_model(tmp_path, tiny=True), size)
    assert engine.graph_tokens == 0
    requests = [Request(0.01 * k, 40, 12, 12) for k in range(12)]

    def policy(name: str, **limits: int) -> Governor:
        return engine.governor(parse_batching({"policy": name, **ITL}), **limits)

    adaptive = policy("adaptive")
    policies = (adaptive, policy("static"), policy("static", cap=8, chunk=128), adaptive, None)
    for k, governor in enumerate(policies):
        run = engine.serve(requests, governor)
        assert not np.isnan(run.served.first_s).any()
        assert len(run.served.gap_s) == 12 * 11
        assert len(run.own_us) == len(run.samples)
        if governor is not None:  # nothing of a policy's earlier run is counted again
            assert sum(s.prefill_tokens for s in run.samples) == 12 * 40
            most = 128 if k == 2 else 256
            assert max(s.decodes + s.prefill_tokens for s in run.samples) <= most
        else:
            assert not run.samples
    # What may generate more than it will is ended by the client, and no policy knows when.
    honest = policy("adaptive")
    run = engine.serve([replace(r, max_tokens=500) for r in requests], honest)
    assert len(run.served.gap_s) == 12 * 11
    report = honest.report(EngineState(0, 0, 0), 0.0, "", "")
    assert report.finished == 12  # ended, not gone: their lengths are learned
    engine.keep_kv_free(256)
    assert engine.kv_tokens <= 256
    tight = engine.serve([Request(0.0, 60, 60, 60)] * 6, policy("static"))
    assert tight.preemptions > 0
    assert not np.isnan(tight.served.first_s).any()
    engine.keep_kv_free(None)
    assert engine.kv_tokens > 10_000
    # Whoever has not ended by the limit is aborted, and the engine is free for the next run.
    cut = engine.serve([Request(0.0, 60, 900, 900)] * 4, policy("adaptive"), limit_s=0.3)
    assert cut.tokens_per_s > 0
    assert not engine.busy()


def archive_of(folder: Path, files: dict[str, str]) -> Path:
    archive = folder / "made.tar.xz"
    with tarfile.open(archive, "w:xz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return archive


def on_card(
    archive: Path, out: Path, env: dict[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gpu.on_card", str(archive), "--out", str(out)]
    return subprocess.run(
        [*command, "--site", str(archive.parent / "site"), *options],
        env=env,
        capture_output=True,
        text=True,
        timeout=350,
        check=False,
    )


def test_a_machine_that_cannot_run_vllm_is_told_of_before_anything_runs(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, {"vllm/__init__.py": "raise ImportError('libcuda.so.1')"})
    done = on_card(archive, tmp_path / "out", {**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 2
    assert "libcuda.so.1" in done.stderr
    assert "this machine cannot run it" in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_archive_that_cannot_be_unpacked_is_named(tmp_path: Path) -> None:
    archive = tmp_path / "half.tar.xz"
    archive.write_bytes(b"half")
    done = on_card(archive, tmp_path / "out", {**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 2
    assert "error: this machine cannot run it" in done.stderr
    assert str(archive) in done.stderr
    assert "Traceback" not in done.stderr


def test_vllm_0_25_gets_the_modules_that_came_after_it(tmp_path: Path) -> None:
    (tmp_path / "entrypoints" / "serve" / "engine").mkdir(parents=True)
    (tmp_path / "exceptions.py").write_text("class VLLMNotFoundError(Exception): ...\n")
    move(tmp_path)
    moved = tmp_path / "entrypoints" / "serve" / "engine" / "protocol.py"
    assert moved.read_text() == "from vllm.entrypoints.openai.engine.protocol import *\n"
    assert (tmp_path / "entrypoints" / "launchers" / "__init__.py").exists()
    errors = runpy.run_path(str(tmp_path / "exceptions.py"))
    assert errors["GracefulHTTPError"]("full", 503).http_status == 503
    assert "VLLMNotFoundError" in errors


@pytest.mark.engine
@pytest.mark.timeout(400)
def test_the_whole_of_it_in_a_minute(tmp_path: Path) -> None:
    out = tmp_path / "out"
    env = {
        **os.environ,
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "PYTHONPATH": str(ROOT),
    }
    archive = archive_of(tmp_path, {"bin/serve": "", "a_wheel.py": ""})
    options = ["--try", "--seconds", "2", "--itl-ms", "60", "--rounds", "1"]
    done = on_card(archive, out, env, "--budget-s", "90", "--", *options)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "site" / "a_wheel.py").exists()
    assert (out / "steps.json").exists()
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["bench"] == "gpu"
    ids = [row["id"] for row in told["rows"]]
    assert json.loads((out / "rows.json").read_text()) == told["rows"]
    assert "gpu_step_of_one" in ids
    assert load_profile(str(out / "card.json")).step_s(1, 100, 0, 0) > 0
    kept = read(out)
    for key, (_, served, taken) in kept.items():
        assert len(served.arrival_s) and (len(taken) or "plain" in key), key
    # What there was no time for is named; what there was time for is kept.
    skipped = next(line for line in done.stdout.splitlines() if "left out:" in line)
    assert "nothing" in skipped or len(kept) < 40
