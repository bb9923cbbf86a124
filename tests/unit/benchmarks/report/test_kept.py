"""Replays are kept for the code and the task they are of, and made once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.report import kept as module
from benchmarks.report.kept import KeptRuns, code_of
from benchmarks.report.workers import Bench

MADE: list[int] = []
SEEN = threading.Event()
CANCELLED: list[bool] = []


@dataclass(frozen=True)
class Task:
    number: int


def double(task: Task) -> int:
    MADE.append(task.number)
    return 2 * task.number


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    MADE.clear()


@pytest.fixture
def kept(tmp_path: Path) -> KeptRuns:
    return KeptRuns(tmp_path / "below" / "runs.sqlite")


def run(kept: KeptRuns | None, *numbers: int) -> list[int]:
    with ThreadPoolExecutor(2) as pool:
        return Bench(pool, (1,), kept=kept).map(double, [Task(n) for n in numbers], "doubles")


def test_only_what_was_not_kept_is_made(kept):
    assert run(kept, 3, 1) == [6, 2]
    assert run(kept, 1, 2, 3) == [2, 4, 6]
    assert sorted(MADE) == [1, 2, 3]


def test_without_a_file_everything_is_made(kept):
    assert run(None, 1) == run(None, 1) == [2]
    assert MADE == [1, 1]


def test_nothing_counts_as_a_result(kept):
    kept.add(double, Task(0), None)
    assert kept.get(double, Task(0)) == (None,)
    assert kept.get(double, Task(1)) is None


def test_it_can_be_made_again_and_leaves_the_others_alone(kept, tmp_path):
    run(kept, 1, 2)
    run(KeptRuns(tmp_path / "below" / "runs.sqlite", again=True), 1)
    assert MADE[2:] == [1]
    assert run(kept, 2) == [4]
    assert len(MADE) == 3


def fails_at_one(task: Task) -> int:
    if task.number == 1:
        raise RuntimeError("one")
    if task.number > 1:
        SEEN.wait()
    return double(task)


class Watched(ThreadPoolExecutor):
    """Lets the task that is under way end once all that wait have been cancelled."""

    def submit(self, *args):
        future = super().submit(*args)
        future.add_done_callback(self._seen)
        return future

    def _seen(self, future):
        CANCELLED.append(future.cancelled())
        if sum(CANCELLED) == 6:
            SEEN.set()


def test_after_an_error_nothing_more_is_begun_and_what_is_done_is_kept(kept):
    SEEN.clear()
    CANCELLED.clear()
    with Watched(1) as pool, pytest.raises(RuntimeError, match="one"):
        Bench(pool, (1,), kept=kept).map(fails_at_one, [Task(n) for n in range(9)], "some")
    assert MADE == [0, 2]  # the second was under way
    for number in MADE:
        assert kept.get(fails_at_one, Task(number)) == (2 * number,)


def test_other_code_finds_nothing_of_it(kept, monkeypatch):
    run(kept, 1)
    monkeypatch.setattr(module, "code_of", lambda folder: "another")
    run(kept, 1)
    assert MADE == [1, 1]


def test_the_code_of_the_bench_itself_is_part_of_it(tmp_path):
    before = code_of(tmp_path)
    (tmp_path / "bench.py").write_text("a = 1")
    code_of.cache_clear()
    assert code_of(tmp_path) != before
