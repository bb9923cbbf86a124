"""What the demo's picture shows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from controller.errors import ConfigError
from serve_app.demo.plot import applied, binned, draw
from serve_app.demo.report import Sample
from tests.builders import engine, limits, report
from tests.unit.serve_app.demo.phases import answer, phase


def test_percentiles_are_those_of_each_bin_of_time() -> None:
    seen = binned(np.array([0.1, 0.4, 1.6, 0.2]), np.array([1.0, 3.0, 7.0, 2.0]), bin_s=0.5)
    assert seen.middle_s.tolist() == [0.25, 1.75]
    assert seen.p50.tolist() == [2.0, 7.0]
    assert seen.p99.tolist() == pytest.approx([2.98, 7.0])


def test_nothing_has_no_bins() -> None:
    assert len(binned(np.zeros(0), np.zeros(0)).middle_s) == 0


def test_limits_are_drawn_as_the_engine_kept_to_them() -> None:
    size = engine(max_num_seqs=64, max_num_batched_tokens=8192)
    seen, told = report(token_budget=100, decoding=8, engine=size), limits(max_running=9)
    off, on = Sample(0.0, replace(seen, enforced=False), told), Sample(1.0, seen, told)
    full = Sample(2.0, replace(seen, decoding=200), told)
    times, caps, chunks = applied([off, on, full])
    assert times == [0.0, 1.0, 2.0]
    assert caps == [64, 9, 9]
    assert chunks == [8184, 92, 0]


def test_the_picture_is_written(tmp_path: Path) -> None:
    path = tmp_path / "demo.png"
    off = phase(answer(0.01, 0.4), name="control off")
    on = phase(answer(0.02, 0.03), begin_s=13.0, end_s=23.0)
    draw([off, on], 40.0, path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        draw([phase(answer(0.1))], 40.0, tmp_path / "nowhere" / "demo.png")
