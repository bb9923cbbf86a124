"""Which rows there are, what they are of, and their targets."""

import json

import pytest

from benchmarks.path.client import Seen
from benchmarks.path.measure import Found, Measured
from benchmarks.path.report import section
from benchmarks.path.stacks import STACKS

NAMES = [stack.name for stack in STACKS]
PER_S = dict(zip(NAMES, (2000.0, 3000.0, 1600.0, 2850.0, 2820.0), strict=True))


def load(stack: str, number: int, streams: int) -> Measured:
    """A load whose server makes the tokens of ``PER_S``, 10% more in a later round."""
    seconds = 4096 / PER_S[stack] / (1 + number / 10)
    ttft_ms = 90.0 + number if stack == "bare" else 96.0 + number
    seen = Seen(seconds, 4096, 4000, (ttft_ms, 200.0), (15.0, 32.0), 0.2, 0.1, 1.0)
    return Measured(stack, number, streams, seen, 0.9)


def found(names: list[str]) -> Found:
    result = Found()
    for number in range(2):
        for name in names:
            result.loads.append(load(name, number, 32))
            result.loads.append(load(name, number, 64))
    return result


def test_every_claim_has_its_row() -> None:
    rows = {row.id: row for row in section(found(NAMES), (32, 64), 2).rows}
    assert rows["adaptive_over_bare_64"].estimate.value == pytest.approx(1.41)
    assert rows["adaptive_over_bare_64"].at_least == 1.0
    assert rows["adaptive_over_bare_in_process_64"].met is False  # 0.94 of 0.95
    assert rows["static_over_bare_in_process_64"].met is True
    assert rows["adaptive_over_static_64"].estimate.value == pytest.approx(2820 / 2850)
    assert rows["adaptive_over_ray_direct_64"].at_least == 1.1
    assert rows["adaptive_ttft_over_bare_32_ms"].estimate.value == pytest.approx(6.0)
    assert rows["adaptive_ttft_over_bare_32_ms"].at_most == 10
    assert rows["client_waited_frac_64"].met is None
    for row in rows.values():
        json.dumps(row.to_json())


def test_what_was_broken_off_leaves_the_rest_and_says_why() -> None:
    result = found(["bare", "static"])
    result.loads.pop()  # the second round's last, of static at 64 streams
    result.failed.append("bare: it ended")
    made = section(result, (32, 64, 256), 2)
    assert {row.id for row in made.rows} == {"static_over_bare_64", "client_waited_frac_64"}
    assert made.rows[0].estimate.runs == 1
    page = made.markdown("make bench-path")
    assert "Broken off: bare: it ended" in page
    assert "| 256, " not in page
