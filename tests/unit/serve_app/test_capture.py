"""``brimful capture`` against replicas that are here, without Ray."""

import argparse
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.errors import BrimfulError, ConfigError
from replicas.engine.channel import UNDRAINED_S
from serve_app import capture
from serve_app.record import Call
from simulator.workloads.files import read_requests
from tests.builders import batching, report
from tests.unit.serve_app.snapshots import snapshot_of


class Fleet:
    """Replicas at each of which a request ends every second of their own clock."""

    def __init__(self, *names: str) -> None:
        self.now_s, self.names, self.owners = 0.0, list(names), dict[str, str]()
        self.silent = set[str]()
        self._told: dict[str, float] = {}
        self.ends_s = float("inf")  # Ctrl-C
        self.loses = 0  # each time that it is asked
        self.happens: Callable[[float], None] = lambda now_s: None  # at each moment

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.happens(self.now_s)
        if self.now_s > self.ends_s:
            raise KeyboardInterrupt

    def callers(self) -> dict[str, Call]:
        return {name: self._caller(name) for name in self.names}

    def _caller(self, name: str) -> Call:
        def call(method: str, owner: str, on: bool) -> Any:
            assert method == "requests"
            if name in self.silent:
                raise BrimfulError(f"replica {name} does not answer (RayActorError)")
            if fresh := on and name not in self.owners:
                self.owners[name], self._told[name] = owner, self.now_s
            if self.owners.get(name) != owner:
                return None
            since_s, self._told[name] = self._told[name], self.now_s
            if not on:
                del self.owners[name]
            rows = [self._row(float(t)) for t in range(int(since_s), int(self.now_s))]
            return {"requests": rows[::-1], "lost": self.loses, "fresh": fresh}

        return call

    @staticmethod
    def _row(arrival_s: float) -> dict[str, Any]:
        return {
            "arrival_s": arrival_s,
            "input_tokens": 600,
            "output_tokens": 7,
            "max_tokens": 20,
            "priority": 0,
            "cancelled": False,
            "service": None,
            "prefix": ["a1"],
        }

    def capture(
        self, path: Path, seconds: float, most_bytes: float = 1e9, warn: Callable[..., Any] = print
    ) -> int:
        told: list[int] = []
        with capture.appended(path) as out:
            lost = capture.capture(
                self.callers,
                out,
                seconds,
                most_bytes,
                told.append,
                warn,
                clock=lambda: self.now_s,
                sleep=self.sleep,
            )
        self.told = sum(told)
        return lost


def test_what_ended_at_every_replica_is_a_line_that_replay_reads(tmp_path: Path) -> None:
    fleet = Fleet("a", "b")
    assert fleet.capture(tmp_path / "w.jsonl", 5) == 0
    found = read_requests(tmp_path / "w.jsonl")
    assert len(found) == fleet.told == 10
    assert [r.arrival_s for r in found] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert {(r.input_tokens, r.output_tokens, r.max_tokens) for r in found} == {(600, 7, 20)}
    assert {r.prefix for r in found} == {("a1",)}
    assert fleet.owners == {}


def test_lines_of_a_replica_are_in_order_and_what_was_lost_adds_up(tmp_path: Path) -> None:
    fleet = Fleet("a")
    fleet.loses = 2
    sleep = fleet.sleep
    fleet.sleep = lambda seconds: sleep(3 * seconds)  # type: ignore[method-assign]
    assert fleet.capture(tmp_path / "w.jsonl", 6) == 2 * 4  # begin, two looks, end
    lines = (tmp_path / "w.jsonl").read_text().splitlines()
    assert [json.loads(line)["arrival_s"] for line in lines] == [0, 1, 2, 3, 4, 5]


def test_a_file_is_gone_on_with(tmp_path: Path) -> None:
    fleet = Fleet("a")
    fleet.capture(tmp_path / "w.jsonl", 3)
    fleet.capture(tmp_path / "w.jsonl", 2)
    assert len(read_requests(tmp_path / "w.jsonl")) == 5


def test_ctrl_c_ends_it_with_all_that_ended(tmp_path: Path) -> None:
    fleet = Fleet("a")
    fleet.ends_s = 3.5
    fleet.capture(tmp_path / "w.jsonl", float("inf"))
    assert len(read_requests(tmp_path / "w.jsonl")) == 4
    assert fleet.owners == {}


def test_a_file_does_not_grow_without_end(tmp_path: Path) -> None:
    fleet = Fleet("a")
    fleet.capture(tmp_path / "w.jsonl", 1000, most_bytes=1000)
    assert 1000 <= (tmp_path / "w.jsonl").stat().st_size < 1200


def test_replicas_that_come_are_captured_too(tmp_path: Path) -> None:
    fleet = Fleet("a")
    fleet.capture(tmp_path / "first.jsonl", 25)
    assert fleet.told == 25
    fleet.happens = lambda now_s: fleet.names.append("b") if now_s == 30 else None
    fleet.capture(tmp_path / "w.jsonl", 25)
    assert 25 + 10 <= fleet.told <= 25 + 15  # b from 35 or 45 to 50


def test_one_that_does_not_answer_is_told_of_once_and_asked_again(tmp_path: Path) -> None:
    fleet, said = Fleet("a", "b"), list[str]()

    def falls_silent(now_s: float) -> None:
        fleet.silent = {"b"} if 2 <= now_s < 5 else set()

    fleet.happens = falls_silent
    fleet.capture(tmp_path / "w.jsonl", 8, warn=said.append)
    (only,) = said
    assert only.startswith("replica b does not answer (RayActorError); what ends there")
    assert fleet.told == 16


def test_two_do_not_capture_one_replica_at_once(tmp_path: Path) -> None:
    fleet = Fleet("a", "b")
    fleet.owners["b"] = "another"
    with pytest.raises(BrimfulError, match="replica b is captured by another"):
        fleet.capture(tmp_path / "w.jsonl", 5)
    assert fleet.owners == {"b": "another"}


def test_one_that_another_captures_from_then_on_is_told_of(tmp_path: Path) -> None:
    fleet, said = Fleet("a", "b"), list[str]()

    def later(now_s: float) -> None:
        if now_s == 3:
            fleet.owners["b"] = "another"
        if now_s == 4:
            del fleet.owners["a"]  # nobody asked it for long

    fleet.happens = later
    fleet.capture(tmp_path / "w.jsonl", 6, warn=said.append)
    first, second = said
    assert first.startswith("replica b is captured by another")
    assert second.startswith("replica a was not asked for 30 s and recorded no more")
    assert f"less than {UNDRAINED_S:g} s ago" in first
    assert fleet.owners == {"b": "another"}


def test_a_replica_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    fleet, answers = Fleet("a", "b"), threading.Event()
    asked, callers = list[float](), fleet.callers

    def some_hang() -> dict[str, Call]:
        found = callers()

        def hangs(method: str, owner: str, on: bool) -> Any:
            if fleet.now_s == 1:
                answers.wait(60)
            return found["b"](method, owner, on)

        def counts(*args: Any) -> Any:
            asked.append(fleet.now_s)
            return found["a"](*args)

        return {"a": counts, "b": hangs}

    fleet.callers = some_hang  # type: ignore[method-assign]
    fleet.happens = lambda now_s: answers.set() if now_s == 4 else None
    fleet.capture(tmp_path / "w.jsonl", 5)
    assert asked == [0, 1, 2, 3, 4, 5, 5]
    assert fleet.told == 10


def test_it_begins_without_those_that_do_not_answer_unless_none_does(tmp_path: Path) -> None:
    fleet, said = Fleet("a", "b"), list[str]()
    fleet.silent = {"b"}
    fleet.capture(tmp_path / "w.jsonl", 3, warn=said.append)
    assert (len(said), fleet.told) == (1, 3)
    fleet.silent = {"a", "b"}
    with pytest.raises(BrimfulError, match="does not answer"):
        fleet.capture(tmp_path / "w.jsonl", 3)


def test_replicas_that_the_controller_has_forgotten_are_asked_on(tmp_path: Path) -> None:
    fleet = Fleet("a", "b")
    callers = fleet.callers
    fleet.callers = lambda: (  # type: ignore[method-assign]
        callers() if fleet.now_s < 5 else {"b": callers()["b"]}
    )
    fleet.capture(tmp_path / "w.jsonl", 25)
    assert fleet.told == 50


def test_a_line_that_was_left_unfinished_is_cut_off(tmp_path: Path) -> None:
    path, fleet = tmp_path / "w.jsonl", Fleet("a")
    fleet.capture(path, 3)
    whole = path.read_bytes()
    long = whole * 200  # more than is looked at
    for lines, left in (
        (whole, b'{"arr'),
        (whole, b'{"arrival_s":1.5,"input_tok'),
        (whole, b""),
        (long, b'{"arrival_s":1.5'),
        (b"", b'{"arri'),
    ):
        path.write_bytes(lines + left)
        with capture.appended(path):
            pass
        assert path.read_bytes() == lines


@pytest.mark.parametrize("text", ["a report\n", "x" * 20_000, '{"arrival_s":' + "x" * 20_000])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.txt"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"--out: .* a new file"), capture.appended(path):
        pass
    assert path.read_text() == text


def test_a_full_disk_is_one_message() -> None:
    with (
        pytest.raises(BrimfulError, match="/dev/full: No space left on device"),
        capture.appended(Path("/dev/full")) as out,
    ):
        out.write("x")
        out.flush()


def test_which_replicas() -> None:
    two = snapshot_of(
        (report(replica_id="b2", group="g"), batching()),
        (report(replica_id="a1", group="h"), batching()),
    )
    assert capture.replicas_in(two, None) == ["a1", "b2"]
    assert capture.replicas_in(two, "g") == ["b2"]
    with pytest.raises(BrimfulError, match="'x' does not exist; the groups are: g, h"):
        capture.replicas_in(two, "x")
    with pytest.raises(BrimfulError, match="no replica has reported yet"):
        capture.replicas_in(snapshot_of(), None)


def test_a_folder_that_is_not_there_is_told_before_anything_starts(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    capture.add_arguments(parser)
    args = parser.parse_args(["--out", str(tmp_path / "no" / "w.jsonl")])
    with pytest.raises(ConfigError, match="an existing folder"):
        capture.run(args)
    with pytest.raises(SystemExit):
        parser.parse_args(["--out", "w", "--seconds", "0"])
