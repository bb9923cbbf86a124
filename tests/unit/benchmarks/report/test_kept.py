"""Replays are kept for the code and the task they are of, and made once."""

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


@dataclass(frozen=True)
class Task:
    number: int


def double(task: Task) -> int:
    MADE.append(task.number)
    return 2 * task.number


@pytest.fixture
def kept(tmp_path: Path) -> KeptRuns:
    MADE.clear()
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


def test_what_was_edited_while_it_ran_is_not_kept(kept, monkeypatch):
    written = iter([1, 2, 2, 2])
    monkeypatch.setattr(module, "_changed_ns", lambda name, ours: next(written))
    with pytest.warns(UserWarning, match="edited while it ran"):
        assert run(kept, 1) == [2]
    assert kept.get(double, Task(1), ours=True) is None


def fails_at_one(task: Task) -> int:
    if task.number == 1:
        raise RuntimeError("one")
    if task.number > 1:
        SEEN.wait()
    return double(task)


def test_after_an_error_nothing_more_is_begun(kept):
    SEEN.clear()
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(RuntimeError, match="one"):
            Bench(pool, (1,), kept=kept).map(fails_at_one, [Task(n) for n in range(9)], "some")
        SEEN.set()
    assert MADE == [0, 2]  # the second was under way


def test_other_code_finds_nothing_of_it(kept, monkeypatch):
    run(kept, 1)
    monkeypatch.setattr(module, "code_of", lambda name, ours: "of another day")
    run(kept, 1)
    assert MADE == [1, 1]


def test_a_rivals_replay_does_not_stand_on_our_policy():
    def below(closed: tuple[str, ...]) -> set[str]:
        found = imported_by(["benchmarks.contests.entry", module.OF_RIVALS], closed=closed)
        return {str(path.relative_to(ROOT)) for path in found}

    ours, rivals = below(()), below((module.REGISTRY,))
    both = {
        "benchmarks/baselines/qoserve.py",
        "benchmarks/replay/capacity.py",
        "benchmarks/virtual/scheduler.py",
        "controller/policies/static.py",
        "replicas/governor.py",
    }
    assert both <= ours and both <= rivals
    assert "controller/policies/adaptive.py" in ours - rivals
    assert not any(path.startswith("benchmarks/rivals/") for path in ours)
    of_ours, of_rivals = (code_of("benchmarks.contests.entry", ours) for ours in (True, False))
    assert of_ours != of_rivals
