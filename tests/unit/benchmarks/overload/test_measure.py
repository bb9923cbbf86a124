"""What the overload bench keeps of a run that is made in parts."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.overload.figures import Figures
from benchmarks.overload.measure import Kept, Measured, Settings, promise, slots_per_s

SETTINGS = Settings(40.0, 2.0, 1)
FIGURES = Figures(
    (4.0, 4.5), 0.97, {"gold": (1.0, 0.99)}, 0.012, 1.5, 0, 1, 2, 0, 0.3, 0.01
)  # fmt: skip
MEASURED = Measured(FIGURES, 3.5, 0.01, 0.2)


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
