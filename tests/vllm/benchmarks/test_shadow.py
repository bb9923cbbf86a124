"""``brimful shadow`` against a snapshot that is here, without Ray."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.errors import BrimfulError, ConfigError
from controller.models.step_time import StepModel
from controller.records import EngineLimits
from simulator.replay import shadow
from tests.builders import batching, report
from tests.unit.serve_app.snapshots import snapshot_of

ENGINE = EngineLimits(64, 2048, 50_000, 16)
MODEL = StepModel(0.02, 1e-4, 0.0, 1.2e-4, 0.0, 0.0)


def line(second: float, replica: str = "a1") -> str:
    return json.dumps(
        {
            "arrival_s": 1e9 + second,
            "input_tokens": 1500,
            "output_tokens": 30,
            "max_tokens": 100,
            "priority": 0,
            "replica": replica,
        }
    )


def run(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *argv: str,
    model: StepModel | None = MODEL,
    engine: EngineLimits = ENGINE,
    **settings: Any,
) -> None:
    settings = {"policy": "adaptive", "enforce": False, "sla": {"itl_ms": 50}, **settings}
    known = snapshot_of((report(replica_id="a1", engine=engine, model=model), batching(**settings)))
    monkeypatch.setattr(shadow, "connect", lambda address: None)
    monkeypatch.setattr(shadow, "read_snapshot", lambda: known)
    parser = argparse.ArgumentParser()
    shadow.add_arguments(parser)
    assert shadow.run(parser.parse_args([str(path), *argv])) == 0


def test_the_same_requests_with_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hour.jsonl"
    lines = [line(k * 0.4) for k in range(200)] + [line(1.0, "b2")] * 50
    path.write_text("\n".join(lines))
    run(path, monkeypatch, "--json")
    off, on = (json.loads(text) for text in capsys.readouterr().out.splitlines())
    assert (off["requests"], on["requests"]) == (200, 200)
    assert (off["policy"], on["policy"]) == ("vLLM's own", "adaptive")
    # A whole prompt of 1,500 tokens takes 0.2 s, which everybody beside it waits for.
    assert off["itl_ms"]["p99"] > 150
    assert on["itl_ms"]["p99"] <= 51


def test_without_control_nothing_of_the_batching_block_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hour.jsonl"
    path.write_text("\n".join(line(k * 0.1) for k in range(50)))
    seen = []
    for settings in ({}, {"enforce": True, "max_running": {"max": 2}}):
        run(path, monkeypatch, "--json", **settings)
        seen.append(json.loads(capsys.readouterr().out.splitlines()[0]))
    assert seen[0] == seen[1]


def test_what_it_cannot_go_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hour.jsonl"
    path.write_text(line(0.0, "b2"))
    with pytest.raises(ConfigError, match="no request of replica a1; it has those of: b2"):
        run(path, monkeypatch)
    path.write_text(line(0.0))
    with pytest.raises(BrimfulError, match="has learned no step times yet"):
        run(path, monkeypatch, model=None)
    with pytest.raises(BrimfulError, match="replica a1 speculates"):
        run(path, monkeypatch, engine=replace(ENGINE, tokens_per_decode=3))


def test_a_profile_is_the_replicas_engine_with_what_it_learned() -> None:
    made: Any = shadow.profile_of("a1", MODEL, ENGINE)
    assert made.step_s(10, 0, 100, 0) == pytest.approx(0.02 + 1e-3 + 0.012)
    assert (made.kv_tokens, made.max_num_seqs, made.max_num_batched_tokens) == (50_000, 64, 2048)
