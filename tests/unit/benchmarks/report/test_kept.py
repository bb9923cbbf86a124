"""Replays are kept for the code and the task they are of, and made once."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.report import kept as module
from benchmarks.report.code import imported_by
from benchmarks.report.document import ROOT
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
    kept.add(double, Task(0), None, ours=True)
    assert kept.get(double, Task(0), ours=True) == (None,)
    assert kept.get(double, Task(1), ours=True) is None


def test_it_can_be_made_again_and_leaves_the_others_alone(kept, tmp_path):
    run(kept, 1, 2)
    run(KeptRuns(tmp_path / "below" / "runs.sqlite", again=True), 1)
    assert MADE[2:] == [1]
    assert run(kept, 2) == [4]
    assert len(MADE) == 3


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A file that the tasks' code stands on."""
    path = tmp_path / "code.py"
    path.write_text("a = 1")
    monkeypatch.setattr(module, "files_of", lambda name, ours: (path,))
    module.code_of.cache_clear()
    yield path
    module.code_of.cache_clear()


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_what_was_edited_while_it_ran_is_not_kept(code, tmp_path, moved, again):
    kept = KeptRuns(tmp_path / "runs.sqlite", [__name__], again=again)
    if moved:
        code.unlink()
    else:
        code.write_text("a = 2")
        os.utime(code, (1, 1))  # as it is moved here from elsewhere
    with pytest.warns(UserWarning, match="edited while it ran"):
        assert run(kept, 1) == [2]
    code.write_text("a = 1")
    assert run(kept, 1) == [2]
    assert MADE == [1, 1]


def test_the_code_of_what_was_not_named_is_read_before_it_runs(code, tmp_path):
    kept = KeptRuns(tmp_path / "runs.sqlite", again=True)
    assert kept.get(double, Task(1), ours=True) is None
    code.write_text("a = 2")
    with pytest.warns(UserWarning, match="edited while it ran"):
        kept.add(double, Task(1), 2, ours=True)


def test_what_is_asked_twice_is_made_once_though_made_again(kept, tmp_path):
    run(kept, 1)
    again = KeptRuns(tmp_path / "below" / "runs.sqlite", again=True)
    assert run(again, 1) == run(again, 1) == [2]
    assert MADE == [1, 1]


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
        assert kept.get(fails_at_one, Task(number), ours=True) == (2 * number,)


def test_other_code_finds_nothing_of_it(code, tmp_path):
    path = tmp_path / "runs.sqlite"
    run(KeptRuns(path), 1)
    code.write_text("a = 2")
    module.code_of.cache_clear()  # as in another process
    run(KeptRuns(path), 1)
    assert MADE == [1, 1]


def test_a_rivals_replay_does_not_stand_on_our_policy():
    def below(closed: tuple[str, ...]) -> set[str]:
        found = imported_by(["benchmarks.contests.measure", *module.OF_RIVALS], closed=closed)
        return {str(path.relative_to(ROOT)) for path in found}

    ours, rivals = below(()), below((module.REGISTRY,))
    both = {
        "benchmarks/baselines/qoserve.py",
        "simulator/replay/capacity.py",
        "simulator/virtual/scheduler.py",
        "controller/policies/static.py",
        "replicas/engine/governor.py",
    }
    assert both <= ours and both <= rivals
    assert "controller/policies/adaptive.py" in ours - rivals
    assert not any(path.startswith("benchmarks/rivals/") for path in ours)
    of_ours, of_rivals = (code_of("benchmarks.contests.measure", ours) for ours in (True, False))
    assert of_ours != of_rivals
