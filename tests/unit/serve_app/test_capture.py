"""``brimful capture`` against replicas that are here, without Ray."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.errors import BrimfulError
from serve_app import capture
from serve_app.record import Call
from simulator.workloads.files import read_requests


class Fleet:
    """Replicas at each of which a request ends every second of their own clock."""

    def __init__(self, *names: str) -> None:
        self.now_s, self.names, self.owners = 0.0, list(names), dict[str, str]()
        self._told: dict[str, float] = {}
        self.ends_s = float("inf")  # Ctrl-C
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
            if fresh := on and name not in self.owners:
                self.owners[name], self._told[name] = owner, self.now_s
            if self.owners.get(name) != owner:
                return None
            since_s, self._told[name] = self._told[name], self.now_s
            if not on:
                del self.owners[name]
            rows = [self._row(float(t)) for t in range(int(since_s), int(self.now_s))]
            return {"requests": rows[::-1], "lost": 0, "fresh": fresh}

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

    def capture(self, path: Path, seconds: float) -> int:
        told: list[int] = []
        with path.open("x") as out:
            lost = capture.capture(
                self.callers,
                out,
                seconds,
                told.append,
                print,
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


def test_ctrl_c_ends_it_with_all_that_ended(tmp_path: Path) -> None:
    fleet = Fleet("a")
    fleet.ends_s = 3.5
    fleet.capture(tmp_path / "w.jsonl", float("inf"))
    assert len(read_requests(tmp_path / "w.jsonl")) == 4
    assert fleet.owners == {}


def test_replicas_that_come_are_captured_too(tmp_path: Path) -> None:
    fleet = Fleet("a")
    fleet.happens = lambda now_s: fleet.names.append("b") if now_s == 5 else None
    fleet.capture(tmp_path / "w.jsonl", 25)
    assert 25 + 5 <= fleet.told <= 25 + 15  # b from 10 or 20 to 25


def test_two_do_not_capture_one_replica_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = Fleet("a", "b")
    fleet.owners["b"] = "another"
    with pytest.raises(BrimfulError, match="nothing was captured"):
        fleet.capture(tmp_path / "w.jsonl", 5)
    assert "replica b is captured by another" in capsys.readouterr().out
    assert fleet.owners == {"b": "another"}
