"""The demo's tables and claims, from phases made by hand."""

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from benchmarks.live.demo_report import (
    Phase,
    Sample,
    at,
    caps_moved,
    claims,
    client_table,
    replica_table,
    too_busy,
)
from benchmarks.live.load import Answer, Ask
from benchmarks.live.machine import Shares
from controller.models.histogram import HistogramCounter
from tests.builders import report

QUIET = Shares(seconds=10.0, others_cores=0.1, cores=2, waited_frac=0.01)


def answer(*gaps_s: float, ttft_s: float = 0.5, **keys: Any) -> Answer:
    made = Answer(200, "", len(gaps_s) + 1, ttft_s, gaps_s, ttft_s + sum(gaps_s))
    return replace(made, **keys)


def samples(*caps: int, itl_s: float = 0.02) -> list[Sample]:
    """A replica that had these caps a second apart, and one gap of ``itl_s`` a second."""
    counter, made = HistogramCounter(), []
    for second, cap in enumerate(caps):
        one = report(max_running=cap, running=3, reason="sla", itl=counter.snapshot())
        made.append(Sample(float(second), one, enforced=True))
        counter.add(itl_s)
    return made


def phase(*answers: Answer, **keys: Any) -> Phase:
    """A pass of 10 s that begins at 2 s."""
    asks = [Ask("a", 4, at_s=float(index)) for index in range(len(answers))]
    made = Phase(True, 2.0, 12.0, asks, answers, QUIET, {"replica-abcde": samples(64, 32)})
    return replace(made, **keys)


def lines(table: Table, width: int = 80) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text().splitlines()


def test_a_phase_counts_whole_answers_alone() -> None:
    seen = phase(answer(0.01, 0.03), answer(0.5, error="broken"), answer(0.2, status=503))
    assert seen.gaps_s.tolist() == [0.01, 0.03]
    assert seen.ttft_s.tolist() == [0.5]
    assert seen.tokens_per_s == pytest.approx(0.3)


def test_gaps_end_where_the_client_saw_them_end() -> None:
    seen = phase(answer(0.1, 0.2, late_s=0.05), answer(), answer(0.4, ttft_s=1.0))
    ends, gaps = seen.gap_ends()
    # Begun at 2 s; the third request is asked for 2 s later.
    assert ends.tolist() == pytest.approx([2.65, 2.85, 5.4])
    assert gaps.tolist() == [0.1, 0.2, 0.4]


def test_gaps_of_no_answer_are_none() -> None:
    ends, gaps = phase(answer(status=500)).gap_ends()
    assert (len(ends), len(gaps)) == (0, 0)


def test_a_percentile_of_nothing_is_none() -> None:
    assert at([], 99) is None
    assert at(np.array([1.0, 3.0]), 50) == 2.0


def test_the_clients_table_has_both_phases_and_fits_80_columns() -> None:
    off = phase(answer(0.01, 0.01, 0.5), enforced=False)
    on = phase(answer(0.02, 0.02, 0.04), answer(0.02))
    shown = lines(client_table(off, on, 45.0))
    assert all(len(line) <= 80 for line in shown)
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown]
    assert ["time between tokens (ITL), p50", "10 ms", "20 ms"] in cells
    assert ["ITL inside the SLA of 45 ms", "66.67%", "100.00%"] in cells
    assert ["tokens/s", "0", "1"] in cells
    assert ["whole answers", "1 of 1", "2 of 2"] in cells
    assert ["client waited for a core", "1.0%", "1.0%"] in cells
    assert not any("…" in line for line in shown)


def test_a_phase_without_an_answer_has_dashes() -> None:
    nothing = phase(answer(status=500))
    shown = "\n".join(lines(client_table(nothing, nothing, 45.0)))
    assert "nan" not in shown
    assert "0 of 1" in shown


def test_the_replicas_table_fits_80_columns() -> None:
    off = phase(samples={"replica-abcde": samples(64, 64, itl_s=0.4)})
    on = phase(samples={"replica-abcde": samples(64, 8, 24), "replica-fghij": samples(64)})
    shown = lines(replica_table(off, on))
    assert all(len(line) <= 80 for line in shown)
    assert not any("…" in line for line in shown)
    text = "\n".join(shown)
    assert "8 to 64" in text
    assert "abcde" in text
    first = next(line for line in shown if "abcde" in line)
    off_ms, on_ms = first.split("│")[-2].split("/")
    assert float(off_ms) == pytest.approx(400, rel=0.07)
    assert float(on_ms) == pytest.approx(20, rel=0.07)


def test_a_cap_that_stood_still_on_one_replica_did_not_move() -> None:
    assert caps_moved(phase(samples={"a": samples(64, 32), "b": samples(64, 63)}))
    assert not caps_moved(phase(samples={"a": samples(64, 32), "b": samples(64, 64)}))
    assert not caps_moved(phase(samples={}))


@pytest.mark.parametrize(
    ("shares", "why"),
    [
        (QUIET, None),
        (replace(QUIET, others_cores=0.7), "other programs took 0.7 of 2 cores"),
        (replace(QUIET, others_cores=0.7, cores=16), None),
        (replace(QUIET, waited_frac=0.2), "the client waited for a core 20% of the time"),
        (replace(QUIET, waited_frac=None), None),
    ],
)
def test_a_busy_machine_is_named(shares: Shares, why: str | None) -> None:
    assert too_busy([phase(answer(0.1)), phase(answer(0.1), shares=shares)]) == why


def test_a_load_that_was_sent_late_is_named() -> None:
    late = phase(*[answer(0.1, late_s=0.4)] * 3)
    assert too_busy([phase(answer(0.1)), late]) == "requests were sent up to 400 ms late"


def test_what_held_is_said_and_what_did_not() -> None:
    off, on = phase(answer(0.01, 0.6)), phase(answer(0.02, 0.1))
    assert [claim.held for claim in claims(off, on, fair=True)] == [True] * 4
    slow = phase(answer(0.01, 0.3), answer(status=500), samples={"a": samples(64)})
    found = claims(off, slow, fair=True)
    assert [claim.held for claim in found] == [False, False, False, True]
    assert found[0].text == "2 of 3 answers whole"
    assert [claim.target for claim in found] == [False, False, True, True]
    assert found[0].line() == "DID NOT HOLD: 2 of 3 answers whole"
    assert found[2].line() == "missed: p99 ITL 0.50 of what it is without control, at most 0.33"
    assert found[3].line().startswith("reached: tokens/s")


def test_of_times_on_a_busy_machine_nothing_is_claimed() -> None:
    off, on = phase(answer(0.01, 0.6)), phase(answer(0.02, 0.6))
    assert [claim.held for claim in claims(off, on, fair=False)] == [True, True]
