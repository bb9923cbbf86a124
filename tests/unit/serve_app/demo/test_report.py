"""What the demo says of phases made by hand."""

import io

from rich.console import Console

from controller.records import ReplicaReport
from serve_app.demo.client import Answer, Ask
from serve_app.demo.report import OFF, ON, Phase, Sample, client_table
from tests.builders import limits, report


def phase(name: str, *gaps_s: float, status: int = 200, caps: tuple[int, ...] = (64, 32)) -> Phase:
    """One answer in 10 s, of a replica with these caps."""
    told: ReplicaReport = report(running=3)
    samples = [Sample(float(k), told, limits(max_running=cap)) for k, cap in enumerate(caps)]
    answer = Answer(status, "no", len(gaps_s) + 1, 0.5, gaps_s, 1.0)
    return Phase(name, 0.0, 10.0, [Ask("a", 4)], [answer], 0.01, {"r": samples})


def test_a_table_says_what_clients_saw() -> None:
    off, on = phase(OFF, 0.01, 0.6), phase(ON, 0.02, 0.03)
    broken = phase(ON, 0.3, status=500)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(client_table([off, on, broken], 50.0))
    shown = console.export_text()
    assert "50.00%" in shown and "100.00%" in shown and "0 of 1" in shown and "…" not in shown
