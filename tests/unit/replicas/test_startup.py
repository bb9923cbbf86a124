"""What a replica says of its start, and who can read it."""

import gc
import importlib
import json
import pickle

import pytest

from replicas.server.startup import StartUp, gc_paused
from replicas.workarounds.core_process import RunEngineCore


def started(*phases: tuple[str, float]) -> StartUp:
    now_s = [100.0]
    start = StartUp(100.0, clock=lambda: now_s[0])
    for phase, seconds in phases:
        now_s[0] += seconds
        start.ends(phase)
    return start


def test_phases_follow_each_other() -> None:
    start = started(("process", 1.5), ("imports", 8.0), ("engine", 12.25))

    assert start.phases == {"process": 1.5, "imports": 8.0, "engine": 12.25}
    assert str(start) == ("Replica started in 21.8 s: process 1.5 s, imports 8.0 s, engine 12.2 s")


@pytest.mark.parametrize("was_on", [True, False])
def test_collection_is_as_it_was_after_a_pause(was_on: bool) -> None:
    (gc.enable if was_on else gc.disable)()
    try:
        with pytest.raises(ImportError), gc_paused():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() == was_on
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.enable()


def test_nothing_is_collected_from_when_enginecores_function_is_unpickled() -> None:
    sent = pickle.dumps(RunEngineCore())
    try:
        run = pickle.loads(sent)
        assert not gc.isenabled()
        run.ends()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.enable()


def test_what_is_absent_is_not_found_before_enginecore_runs_and_found_then() -> None:
    there, absent = "json", "wsgiref.validate"  # a module that is imported stays what it is
    sent = pickle.dumps(RunEngineCore((there, absent)))
    try:
        run = pickle.loads(sent)
        with pytest.raises(ImportError):
            importlib.import_module(absent)
        assert importlib.import_module(there) is json
        run.ends()
        assert importlib.import_module(absent).__name__ == absent
    finally:
        gc.unfreeze()
        gc.enable()
