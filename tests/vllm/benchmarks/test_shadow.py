"""``brimful shadow`` against a snapshot that is here, without Ray."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

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
    # A whole prompt of 1,500 tokens takes 0.2 s, for which all others wait.
    assert off["itl_ms"]["p99"] > 150
    assert on["itl_ms"]["p99"] <= 51
