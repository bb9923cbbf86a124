"""``brimful record`` against a replica that is here, without Ray."""

import argparse
from collections.abc import Iterator
from typing import Any

import pytest

from controller.data_file import read_json
from controller.errors import BrimfulError
from replicas.engine.step_recorder import COLUMNS
from replicas.profiles.profile_file import ProfileFile, load_profile
from replicas.profiles.recorded import LEAST_STEPS
from serve_app import record
from serve_app.record import choose
from tests.builders import batching, engine, report
from tests.unit.serve_app.snapshots import snapshot_of

FACTS = {"machine": "a CPU, 2 cores", "model": "tiny, bfloat16", "versions": {"vllm": "0.29.0"}}
CONFIG = batching()


def two() -> dict[str, Any]:
    """A snapshot with ``b2`` in group ``g`` and ``a1`` in group ``h``."""
    return snapshot_of(
        (report(replica_id="b2", group="g"), CONFIG), (report(replica_id="a1", group="h"), CONFIG)
    )


class Replica:
    """Runs so many steps a second of its own clock."""

    def __init__(self, steps_per_s: int) -> None:
        self.now_s, self.per_s, self.calls = 0.0, steps_per_s, list[tuple[Any, ...]]()
        self._undrained, self.is_anothers = 0, False

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self._undrained += round(seconds * self.per_s)

    def call(self, method: str, *args: Any) -> Any:
        self.calls.append((method, *args))
        if method == "facts":
            return FACTS
        if self.is_anothers:
            return None
        count, self._undrained = self._undrained, 0
        return {name: [7] * count for name in COLUMNS}

    def record(self, seconds: float) -> dict[str, list[int]]:
        return record.record(
            self.call, seconds, lambda *_: None, clock=lambda: self.now_s, sleep=self.sleep
        )


def test_every_step_until_the_end_is_in_it():
    replica = Replica(40)
    steps = replica.record(2.5)
    assert {name: len(column) for name, column in steps.items()} == dict.fromkeys(COLUMNS, 100)
    ((_, owner, _), *_) = replica.calls
    assert replica.calls == [("steps", owner, True)] * 4 + [("steps", owner, False)]


def test_few_steps_are_an_error():
    with pytest.raises(BrimfulError, match=f"only 12 steps ran in 4 s, and {LEAST_STEPS} are"):
        Replica(3).record(4)


def test_two_do_not_record_one_replica_at_once():
    replica = Replica(40)
    replica.is_anothers = True
    with pytest.raises(BrimfulError, match="is recorded already"):
        replica.record(4)


@pytest.mark.parametrize(
    ("known", "replica_id", "group", "said"),
    [
        (two(), "c3", None, "--replica: 'c3' does not exist; the replicas are: a1, b2"),
        (two(), "a1", "g", "--replica: 'a1' does not exist; the replicas are: b2"),
        (two(), None, "k", "--group: 'k' does not exist; the groups are: g, h"),
        (snapshot_of(), None, None, "no replica has reported yet"),
    ],
)
def test_who_is_not_there_is_said(known, replica_id, group, said):
    with pytest.raises(BrimfulError) as error:
        choose(known, replica_id, group)
    assert str(error.value) == said


def arguments(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    record.add_arguments(parser)
    return parser.parse_args(argv)


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Replica]:
    """A cluster with one replica."""
    replica = Replica(100)
    monkeypatch.setattr(record, "connect", lambda address: None)
    monkeypatch.setattr(record, "read_snapshot", two)
    monkeypatch.setattr(record, "caller", lambda replica_id: replica.call)
    monkeypatch.setitem(record.record.__kwdefaults__, "sleep", replica.sleep)
    monkeypatch.setitem(record.record.__kwdefaults__, "clock", lambda: replica.now_s)
    yield replica


def test_the_file_has_the_steps_and_what_they_are_of(running, tmp_path, capsys):
    out = tmp_path / "steps.json"
    argv = ("--seconds", "2", "--out", str(out))
    assert record.run(arguments(*argv)) == 0
    file = read_json(out, ProfileFile)
    assert file.source.startswith("brimful record, 2 s, ")
    made, limits = file.recordings["tiny"], engine()
    assert made.model_dump(exclude={"steps"}) == FACTS | {
        "load": "",
        "kv_capacity_tokens": limits.kv_tokens,
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
    }
    assert made.steps.model_dump() == dict.fromkeys(COLUMNS, [7] * 200)
    assert load_profile(str(out)).max_num_seqs == limits.max_num_seqs
    said = capsys.readouterr().err
    assert "recording replica a1, the first of 2" in said
    assert "2 of 2 s, 200 steps" in said
