"""What a start is told by."""

from pathlib import Path

from serve_app.launch.command import reason
from serve_app.launch.phases import Phases


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
