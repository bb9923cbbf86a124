"""Keys as people write them, those that change, and those that cannot be read."""

import os
from hashlib import sha256
from pathlib import Path

import pytest

from controller.errors import ConfigError
from replicas.door.key_source import KeySource, logger
from replicas.door.keys import Key, parse_keys
from replicas.door.settings import KeysFrom, parse_security

SECRET = "sk-0123456789abcdef"
OTHER = "sk-fedcba9876543210=="
DIGEST = sha256(SECRET.encode()).hexdigest()
ALICE = Key("alice", bytes.fromhex(DIGEST))


@pytest.mark.parametrize(
    "text",
    [
        f"alice {SECRET}",
        f"# who\n\n  alice   {SECRET} # her laptop\n",
        f"alice sha256:{DIGEST}",
        f"alice {SECRET};",
        f"alice sha256:{DIGEST.upper()}",
    ],
)
def test_a_key_may_be_written_in_several_ways(text: str) -> None:
    assert parse_keys(text, "f").keys == (ALICE,)


def test_a_key_may_have_classes_and_a_limit() -> None:
    text = f"alice {SECRET} classes=batch,gold max_in_flight=8; bob {OTHER}"
    alice, bob = parse_keys(text, "f").keys
    assert (alice.name, alice.classes, alice.max_in_flight) == ("alice", ("batch", "gold"), 8)
    assert (bob.name, bob.classes, bob.max_in_flight) == ("bob", (), None)


def test_a_client_is_found_by_its_key_alone() -> None:
    ring = parse_keys(f"alice {SECRET}\nbob {OTHER}", "f")
    assert [k.name for t in (SECRET, OTHER) if (k := ring.find(t.encode()))] == ["alice", "bob"]
    for token in (
        b"",
        SECRET[:-1].encode(),
        DIGEST.encode(),
        b"sha256:" + DIGEST.encode(),
        b"\xff",
    ):
        assert ring.find(token) is None
    assert SECRET not in repr(ring)
    assert DIGEST not in repr(ring)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f: holds no key; a line for each: NAME KEY [classes=A,B] [max_in_flight=N]"),
        ("alice", "f: line 1: needs the key, or sha256: and its digest"),
        ("alice short-Secret", "f: line 1: key: must be 16 to 512 letters"),
        (f"al:ce {SECRET}", "f: line 1: name: must be up to 64 letters"),
        (f"alice {SECRET} class=gold", "f: line 1: has an option that is not known"),
        (f"alice {SECRET} max_in_flight=0", "f: line 1: max_in_flight: must be a whole"),
        (f"alice {SECRET} classes=", "f: line 1: classes: must be names"),
        (f"alice {SECRET}\nalice {OTHER}", "f: a name is given twice"),
        (f"alice {SECRET}\nbob {SECRET}", "f: a key is given twice"),
        (f"alice sha256:{DIGEST[:-1]}", "f: line 1: sha256: must be 64 hexadecimal digits"),
        (f"alice {SECRET} classes=a,,b", "f: line 1: classes: must be names"),
        (f"alice {SECRET} max_in_flight=1e3", "f: line 1: max_in_flight: must be a whole"),
        (
            f"keys:\n- name: a\n  key: {SECRET}\n  max_in_flight: 8\n",
            "f: none of 4 lines is a key: NAME KEY",
        ),
    ],
)
def test_a_mistake_is_named_by_its_place_and_nothing_of_it_is_repeated(text, said):
    with pytest.raises(ConfigError) as refused:
        parse_keys(text, "f")
    lines = refused.value.problems
    assert any(line.startswith(said) for line in lines), lines
    for secret in (SECRET, OTHER, DIGEST, "short-Secret"):
        assert not any(secret in line for line in lines)


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
    file.write_text(f"carol {FIRST}")  # as long as it was
    os.utime(file, ns=(0, 1))
    assert names(source) == ["alice"]  # it has just been looked at
    now_s[0] += 1.0
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
        "The changed keys are refused, the keys before stay valid"
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
