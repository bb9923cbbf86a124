"""What the overload bench keeps of a run that is made in parts."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.overload.figures import Figures
from benchmarks.overload.measure import (
    Kept,
    Measured,
    Settings,
    most_grown,
    promise,
    slots_per_s,
)

SETTINGS = Settings(40.0, 2.0, 1)
FIGURES = Figures(
    (4.0, 4.5), 0.97, {"gold": (1.0, 0.99)}, 0.012, 1.5, 0, 1, 2, 0, 0.3, 0.01
)  # fmt: skip
MEASURED = Measured(FIGURES, {"raylet 7": (100.0, 120.0, 103.5)}, 0.01, 0.2)


def test_a_later_part_finds_what_was_measured_under_the_same_settings(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "kept.json"
    kept = Kept(path, SETTINGS)
    assert (kept.per_s, kept.by_variant) == (None, {})
    kept.per_s = 4.25
    kept.by_variant["brimful"] = MEASURED
    kept.by_variant["defaults"] = replace(MEASURED, waited_frac=None)
    kept.keep()
    again = Kept(path, SETTINGS)
    assert (again.per_s, again.by_variant) == (kept.per_s, kept.by_variant)
    other = Kept(path, replace(SETTINGS, seconds=60.0))
    assert (other.per_s, other.by_variant) == (None, {})


def test_clients_are_promised_what_the_slower_steps_leave() -> None:
    assert promise(2.0).ttft_s == {"interactive": 4.0, "standard": 10.0, "batch": 40.0}
    assert promise(2.0).itl_s == pytest.approx(0.3)
    # 24 slots, 80 tokens of 59.3 ms.
    assert slots_per_s(2.0) == pytest.approx(24 / (80 * 0.0593), rel=0.01)


def test_growth_is_from_the_first_loads_end_to_the_lasts_of_the_process_that_grew_most() -> None:
    memory = [
        {"a 1": 100.0, "b 2": 50.0, "gone 3": 1.0},
        {"a 1": 190.0, "b 2": 55.0, "new 4": 900.0},
        {"a 1": 104.0, "b 2": 60.0, "new 4": 999.0},
    ]
    held = most_grown(memory)
    assert list(held.items()) == [("b 2", (50.0, 55.0, 60.0)), ("a 1", (100.0, 190.0, 104.0))]
    assert Measured(FIGURES, held, 0.01, 0.2).growth_mb == 10.0
    assert MEASURED.growth_mb == 3.5
