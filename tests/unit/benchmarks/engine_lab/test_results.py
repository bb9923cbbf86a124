"""What was made is found again, by the same task, code and kind of machine."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.engine_lab import results
from benchmarks.engine_lab.hog import Hog
from benchmarks.engine_lab.results import Results, code_behind, key_of
from benchmarks.engine_lab.tasks import (
    BesideTask,
    EngineTask,
    Ground,
    Limits,
    RankTask,
    RateTask,
    RecordTask,
)

GROUND = Ground("tiny", Hog(0.008, 0.030), 130.0, 120.0, 30.0)
STATIC = EngineTask(GROUND, 0.4, 1, False, Limits(32, 40))
ADAPTIVE = replace(STATIC, adaptive=True)


def test_a_result_is_a_line_and_is_found_by_whoever_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first = Results(path)
    assert first.get(key_of(STATIC)) is None
    first.add(key_of(STATIC), {"figures": {"j": 1.5}})
    first.add(key_of(BesideTask((STATIC,))), [{"j": 2}])
    again = Results(path)
    assert again.get(key_of(STATIC)) == {"figures": {"j": 1.5}}
    assert again.get(key_of(BesideTask((STATIC,)))) == [{"j": 2}]
    assert again.get(key_of(replace(STATIC, seed=2))) is None
    (line, _) = map(json.loads, path.read_text().splitlines())
    assert line["task"] == "EngineTask"
    assert {"commit", "machine", "versions", "made", "code", "kind"} <= line.keys()


def test_another_kind_of_machine_has_results_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Results(None)
    kept.add(key_of(STATIC), 3)
    monkeypatch.setattr(results, "kind_of_machine", lambda: "another")
    assert kept.get(key_of(STATIC)) is None


def test_vllm_by_itself_stands_on_none_of_the_policies_code() -> None:
    files = results.imported_by([results.ENGINE_RUN], results.NOT_OF_RIVALS)
    folders = {path.parent.relative_to(results.ROOT).as_posix() for path in files}
    assert folders == {
        "benchmarks/engine_lab",
        "benchmarks/live",
        "simulator/workloads",
        "replicas/engine",
    }
    assert code_behind(STATIC) == code_behind(RecordTask(GROUND)) != code_behind(ADAPTIVE)


def test_a_rate_that_was_found_stays_whatever_the_code() -> None:
    assert code_behind(RateTask(GROUND)) == code_behind(RankTask(GROUND, 0.4)) == ""


def test_replays_stand_on_code_of_their_own() -> None:
    of = {code_behind(task) for task in (STATIC, ADAPTIVE, BesideTask((ADAPTIVE,)))}
    assert len(of) == 3
