"""A hog takes the core when it should, and ends with what started it."""

import os
import time

import psutil
import pytest

from benchmarks.engine_lab.core_watch import CoreWatch
from benchmarks.engine_lab.hog import Hog, hog_process


def test_a_hog_of_phases_begins_in_the_middle_of_one_that_is_on() -> None:
    hog = Hog(0.008, 0.030, phase_s=60.0)
    on = [hog.is_on(at_s) for at_s in (0.0, 29.0, 31.0, 89.0, 91.0, 149.0, 151.0)]
    assert on == [True, True, False, False, True, True, False]
    assert Hog(0.008, 0.030).is_on(31.0)


def test_it_waits_to_be_told_takes_its_share_and_is_gone() -> None:
    core = min(os.sched_getaffinity(0))
    with hog_process(Hog(0.02, 0.005), seed=0) as process:
        assert process is not None
        watched = psutil.Process(process.pid)
        watch = CoreWatch(core, os.getpid(), process)
        while not (taken := watch.shares())["hog_frac"]:
            time.sleep(0.05)
        assert 0 < taken["hog_frac"] <= 1
        assert taken["took_s"] > 0
    assert not watched.is_running()


def test_it_ends_with_its_stdin() -> None:
    with hog_process(Hog(0.001, 0.001), seed=0) as process:
        assert process is not None and process.stdin
        process.stdin.close()
        assert process.wait(30) == 0


@pytest.mark.parametrize("seed", [0, 1])
def test_waits_of_this_process_are_shares_of_the_time(seed: int) -> None:
    watch = CoreWatch(min(os.sched_getaffinity(0)), os.getpid(), None)
    sum(range(10_000 * (1 + seed)))
    found = watch.shares()
    assert found["hog_frac"] == 0
    assert found["waited_frac"] >= 0
