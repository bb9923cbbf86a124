"""Keys that change while the door is open, and those that cannot be read."""

import os
from pathlib import Path

import pytest

from controller.errors import ConfigError
from replicas.door.key_source import KeySource, logger
from replicas.door.settings import KeysFrom, parse_security

FIRST, SECOND = "sk-first-0123456789", "sk-second-0123456789"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was logged of keys."""
    lines: list[str] = []
    for level in ("info", "error"):
        monkeypatch.setattr(logger, level, lambda text, *args: lines.append(text % args))
    return lines


def names(source: KeySource) -> list[str]:
    return [key.name for key in source.ring().keys]


def test_a_changed_file_is_read_again_within_a_second(tmp_path: Path, said: list[str]) -> None:
    file, now_s = tmp_path / "keys", [100.0]
    file.write_text(f"alice {FIRST}")
    source = KeySource(KeysFrom(file=str(file)), lambda: now_s[0])
    file.write_text(f"alice {SECOND}\nbob {FIRST}")
    assert names(source) == ["alice"]  # it has just been looked at
    now_s[0] += 1.0
    assert names(source) == ["alice", "bob"]
    assert source.ring().find(SECOND.encode()) is not None
    assert said == ["Keys were read again: 2; new: bob; gone: none."]


def changed_in_place(file: Path, text: str) -> None:
    """As an editor does it that keeps the file."""
    file.write_text(text)
    before = file.stat()
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


def renamed_over(file: Path, text: str) -> None:
    """As an atomic writer does it, within the clock's own step."""
    other, known = file.with_suffix(".new"), file.stat()
    other.write_text(text)
    os.utime(other, ns=(known.st_atime_ns, known.st_mtime_ns))
    other.replace(file)


@pytest.mark.parametrize("change", [changed_in_place, renamed_over])
def test_keys_of_the_same_size_are_seen_too(tmp_path, said, change):
    file, now_s = tmp_path / "keys", [0.0]
    file.write_text(f"alice {FIRST}")
    source = KeySource(KeysFrom(file=str(file)), lambda: now_s[0])
    change(file, f"carol {FIRST}")
    now_s[0] = 1.0
    assert names(source) == ["carol"]
    assert said == ["Keys were read again: 1; new: carol; gone: alice."]


def test_a_file_that_was_broken_or_is_gone_changes_nothing(tmp_path: Path, said: list[str]) -> None:
    file, now_s = tmp_path / "keys", [0.0]
    file.write_text(f"alice {FIRST}")
    source = KeySource(KeysFrom(file=str(file)), lambda: now_s[0])
    file.write_text(f"alice {SECOND} and more")
    now_s[0] = 1.0
    assert source.ring().find(FIRST.encode()) is not None
    file.unlink()
    now_s[0] = 2.0
    assert source.ring().find(FIRST.encode()) is not None
    assert [line.partition(":")[0] for line in said] == [
        "The keys of before stay good, the changed ones are refused"
    ] * 2
    assert SECOND not in "".join(said)
    file.write_text(f"alice {SECOND}")
    now_s[0] = 3.0
    assert source.ring().find(FIRST.encode()) is None
    assert source.ring().find(SECOND.encode()) is not None


def test_keys_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYS", f"alice {FIRST}; bob {SECOND}")
    assert names(KeySource(KeysFrom(env="KEYS"))) == ["alice", "bob"]


@pytest.mark.parametrize("kind", ["file", "folder", "env", "bytes", "large"])
def test_without_keys_no_door_is_made(kind: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("replicas.door.key_source.MOST_BYTES", 1000)
    (tmp_path / "bytes").write_bytes(b"alice \xff\xfe")
    (tmp_path / "large").write_text("#" * 1001)
    place = {
        "env": KeysFrom(env="BRIMFUL_NO_SUCH_KEYS"),
        "folder": KeysFrom(file=str(tmp_path)),
    }.get(kind, KeysFrom(file=str(tmp_path / kind)))
    with pytest.raises(ConfigError) as refused:
        KeySource(place)
    assert refused.value.problems[0].startswith(
        "environment variable BRIMFUL_NO_SUCH_KEYS: is not set" if kind == "env" else str(tmp_path)
    )


@pytest.mark.parametrize("block", [{}, {"file": "a", "env": "B"}, {"file": ""}])
def test_keys_have_one_place(block: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"security\.keys"):
        parse_security({"keys": block})
