"""Keys as people write them: as lines, as YAML, by their digest; and what is said of mistakes."""

from hashlib import sha256

import pytest

from controller.errors import ConfigError
from replicas.door.keys import Key, parse_keys

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
        f"keys:\n- name: alice\n  key: {SECRET}\n",
        f"keys: [{{name: alice, sha256: '{DIGEST.upper()}'}}]",
        f'{{"keys": [{{"name": "alice", "key": "{SECRET}"}}]}}',
    ],
)
def test_a_key_may_be_written_in_several_ways(text: str) -> None:
    assert parse_keys(text, "f").keys == (ALICE,)


def test_a_key_may_have_classes_and_a_limit() -> None:
    lines = f"alice {SECRET} classes=batch,gold max_in_flight=8; bob {OTHER}"
    listed = f"""
keys:
- {{name: alice, key: {SECRET}, classes: [batch, gold], max_in_flight: 8}}
- {{name: bob, key: {OTHER}}}
"""
    for text in (lines, listed):
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
        ("alice", "f: line 1: needs either the key or its sha256"),
        ("alice short-Secret", "f: line 1: key: must be text of 16 to 512 letters"),
        (f"al:ce {SECRET}", "f: line 1: name: must be up to 64 letters"),
        (f"alice {SECRET} class=gold", "f: line 1: has a key that is not known"),
        (f"alice {SECRET} max_in_flight=0", "f: line 1: max_in_flight: must be a whole"),
        (f"alice {SECRET} classes=", "f: line 1: classes: must be a list"),
        (f"alice {SECRET}\nalice {OTHER}", "f: a name stands there twice"),
        (f"alice {SECRET}\nbob {SECRET}", "f: a key stands there twice"),
        (f"alice sha256:{DIGEST[:-1]}", "f: line 1: sha256: must be 64 hexadecimal digits"),
        ("keys: []", "f: holds no key"),
        (f"keys: [{SECRET}]", "f: keys[0]: must be a mapping with `name`"),
        (f"keys: [{{name: a, key: {SECRET}, {OTHER}: 1}}]", "f: keys[0]: has a key that is not"),
        ("keys: [{name: a, key: 12345678901234567890}]", "f: keys[0]: key: must be text"),
        (f"keys: [{{name: a, key: {SECRET}, sha256: {DIGEST}}}]", "f: keys[0]: needs either"),
        (f"keys: [{{name: a, key: {SECRET}, max_in_flight: true}}]", "f: keys[0]: max_in_flight"),
        (f"keys: [{{name: a, key: {SECRET}, classes: gold}}]", "f: keys[0]: classes: must be a"),
        (
            f"keys: [{{name: a, key: {SECRET}, classes: }}]",
            "f: keys[0]: classes: must be a list of",
        ),
        (f"keys: [{{name: a, key: {SECRET}, classes: []}}]", "f: keys[0]: classes: must be a list"),
        (f"keys: [{{name: a, key: {SECRET}, classes: ['']}}]", "f: keys[0]: classes: must be a"),
    ],
)
def test_a_mistake_is_named_by_its_place_and_nothing_of_it_is_repeated(text, said):
    with pytest.raises(ConfigError) as refused:
        parse_keys(text, "f")
    lines = refused.value.problems
    assert any(line.startswith(said) for line in lines), lines
    for secret in (SECRET, OTHER, DIGEST, "short-Secret", "12345678901234567890"):
        assert not any(secret in line for line in lines)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        *[
            (text, "YAML of another shape")
            for text in (
                f'[{{"name": "alice", "key": "{SECRET}"}}, {{}}]',
                f"- {SECRET}\n- {OTHER}\n- a",
                f"alice: {SECRET}",
                "{}",
                f"keys: []\n{SECRET}: 1",
                f"keys: {{alice: {SECRET}}}",
                "keys:",
                f'"alice {SECRET}"',
            )
        ],
        (f"keys: [{{name: a, key: {SECRET}", "broken YAML (line 1)"),
        (f'# ours\n[{{"name": "a", "key": "{SECRET}"', "broken YAML (line 2)"),
        (f"---\nkeys: []\n---\n- {SECRET}", "broken YAML (line 3)"),
    ],
)
def test_a_file_of_another_shape_gets_one_error(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_keys(text, "f")
    (line,) = refused.value.problems
    assert line == (
        f"f: keys: {what} is not allowed; allowed: a mapping with `keys` alone, a list of"
        " {name, key or sha256, classes, max_in_flight}; or a line for each key:"
        " NAME KEY [classes=A,B] [max_in_flight=N]"
    )


def test_a_file_of_which_no_line_is_a_key_gets_one_error() -> None:
    page = "<html>\n<body>\n<p>not here</p>\n</body>\n</html>"
    with pytest.raises(ConfigError) as refused:
        parse_keys(page, "f")
    (line,) = refused.value.problems
    assert line.startswith("f: line 1: name: must be up to 64 letters, digits, . _ -; nor is any")
    with pytest.raises(ConfigError) as some:
        parse_keys(f"alice {SECRET}\n{page}", "f")
    assert len(some.value.problems) > 5
