"""The demo's tables and verdict, from phases made by hand."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from rich.table import Table

from serve_app.demo.machine import Shares
from serve_app.demo.report import (
    caps_moved,
    client_table,
    replica_table,
    too_busy,
)
from serve_app.demo.verdict import claims, price
from tests.unit.serve_app.demo.phases import QUIET, answer, phase, samples


def lines(table: Table, width: int = 80) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text().splitlines()


def test_a_phase_counts_whole_answers_alone() -> None:
    seen = phase(answer(0.01, 0.03), answer(0.5, error="broken"), answer(0.2, status=503))
    assert seen.gaps_s.tolist() == [0.01, 0.03]
    assert seen.ttft_s.tolist() == [0.5]
    assert seen.tokens_per_s == pytest.approx(0.3)


def test_the_clients_table_has_all_phases_and_fits_80_columns() -> None:
    off = phase(answer(0.01, 0.01, 0.5), name="control off")
    on = phase(answer(0.02, 0.02, 0.04), answer(0.02))
    tuned = phase(answer(0.03), name="tuned by hand")
    shown = lines(client_table([off, on, tuned], 45.0))
    assert all(len(line) <= 80 for line in shown)
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown]
    assert ["ITL p50", "10 ms", "20 ms", "30 ms"] in cells
    assert ["time between tokens (ITL) inside 45 ms", "66.67%", "100.00%", "100.00%"] in cells
    assert ["longest stall", "500 ms", "40 ms", "30 ms"] in cells
    assert ["tokens/s", "0", "1", "0"] in cells
    assert ["whole answers", "1 of 1", "2 of 2", "1 of 1"] in cells
    assert ["client waited for a core", "1.0%", "1.0%", "1.0%"] in cells
    assert not any("…" in line for line in shown)


def test_a_phase_without_an_answer_has_dashes() -> None:
    nothing = phase(answer(status=500))
    shown = "\n".join(lines(client_table([nothing] * 3, 45.0)))
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
    off, on = phase(answer(0.01, 0.6)), phase(answer(0.02, 0.03))
    found = claims(off, on, on, 50.0, fair=True)
    assert [claim.held for claim in found] == [True] * 7
    assert found[2].line() == "reached: inside on 1, at least 0.99"
    slow = phase(answer(0.01, 0.3), answer(status=500, text="no"), samples={"a": samples(64)})
    found = claims(off, slow, on, 50.0, fair=True)
    assert found[0].line() == "DID NOT HOLD: 3 of 4 answers whole (500: no)"
    assert not found[1].held
    assert [claim.target for claim in found] == [False, False, True, True, True, True, True]
    assert found[4].line().startswith("missed: itl p99 on over off 0.")


def test_of_times_on_a_busy_machine_nothing_is_claimed() -> None:
    off, on = phase(answer(0.01, 0.6)), phase(answer(0.02, 0.6))
    assert [claim.held for claim in claims(off, on, on, 50.0, fair=False)] == [True, True]


def test_the_price_of_control_is_told_beside_that_of_tuning_by_hand() -> None:
    off = phase(answer(0.01, 0.6, ttft_s=0.5))
    on = phase(answer(0.02, 0.03, ttft_s=1.0))
    told = price(off, on, on, 50.0)
    assert "Without control 50.0% of the gaps" in told
    assert "Control: 100.0% of the gaps inside the SLA, the longest 0.03 s" in told
    assert "2.0 times as long at the median" in told
