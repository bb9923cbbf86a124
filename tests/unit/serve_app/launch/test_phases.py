"""What a start is told by."""

from pathlib import Path

from serve_app.launch.command import reason
from serve_app.launch.phases import Phases

SAID = """
(EngineCore pid=7) INFO 11-27 21:00:00 [cpu_model_runner.py:131] Starting to load model /m...
(EngineCore pid=7) INFO 11-27 21:00:02 [default_loader.py:431] Loading weights took 1.25 seconds
(EngineCore pid=7) INFO 11-27 21:00:03 [kv_cache_utils.py:1] GPU KV cache size: 24,576 tokens
(EngineCore pid=7) INFO 11-27 21:00:04 [core.py:369] init engine (profile, create kv cache, warmup \
model) took 2.50 s
INFO Replica started in 21.3 s: process 2.1 s, imports 8.0 s
"""


def test_each_phase_is_told_once_as_it_comes(tmp_path: Path) -> None:
    old = tmp_path / "worker-old.err"
    old.write_text(SAID)
    phases = Phases(tmp_path)
    assert list(phases.new()) == []
    lines = SAID.splitlines(keepends=True)
    log = tmp_path / "worker-new.err"
    log.write_text("".join(lines[:2]) + lines[2][:20])
    assert list(phases.new()) == ["weights: loading"]
    log.write_text("".join(lines))
    (tmp_path / "worker-second.err").write_text(SAID)
    assert list(phases.new()) == [
        "weights: read in 1.25 s",
        "KV memory: 24,576 tokens",
        "warm-up: engine ready, 2.50 s with it",
        "replica: started in 21.3 s: process 2.1 s, imports 8.0 s",
    ]
    assert list(phases.new()) == []


def test_why_an_engine_ended_is_told_without_the_calls_that_led_there(tmp_path: Path) -> None:
    phases = Phases(tmp_path)
    (tmp_path / "worker-new.err").write_text(
        "(EngineCore pid=7) ERROR 11-27 22:33:33 [core.py:1374]     raise ValueError(\n"
        "(EngineCore pid=7) ERROR 11-27 22:33:33 [core.py:1374] ValueError: No memory.\n"
        "(EngineCore pid=7) ValueError: No memory.\n"
    )
    failure = (
        "application llm:\nTraceback (most recent call last):\n  calls\nRuntimeError: it ended"
    )
    told = "application llm: a replica failed to start\n{}\nmore in " + str(tmp_path)
    assert reason(failure, phases) == told.format("RuntimeError: it ended")
    assert list(phases.new()) == []
    assert reason(failure, phases) == told.format("ValueError: No memory.")
    assert reason("application llm failed:\nargs: wrong", phases).endswith("args: wrong")
