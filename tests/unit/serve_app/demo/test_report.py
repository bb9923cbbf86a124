"""The demo's tables and verdict, from phases made by hand."""

from dataclasses import replace

import pytest

from serve_app.demo.machine import Shares
from serve_app.demo.report import (
    too_busy,
)
from serve_app.demo.verdict import claims
from tests.unit.serve_app.demo.phases import QUIET, answer, phase, samples


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
