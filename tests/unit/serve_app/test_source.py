"""What the reader of ``brimful check`` says about files that are no proper YAML."""

from pathlib import Path
from typing import Any

import pytest

from controller.errors import ConfigError
from serve_app.source import parse_documents, read_documents


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_documents(text)
    return caught.value.problems


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("none.yaml", None, "cannot be read: No such file or directory"),
        (".", None, "cannot be read: Is a directory"),
        ("x.yaml", b"a: \xff\xfe", "byte 3 is not UTF-8 text"),
        ("\0", None, "no file can have this name"),
        ("z" * 300, None, "File name too long"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(
    tmp_path: Path, name: str, content: bytes | None, told: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=told):
        read_documents(tmp_path / name)


TAB = "found character '\\t' that cannot start any token"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *[
            (empty, ["empty: there is nothing to check"])
            for empty in ("", "\n\n", "# a", "---\n---\n")
        ],
        (
            "a: 1\nb: [1, 2\nc: 3\n",
            ["line 3, column 2: not valid YAML: expected ',' or ']', but got ':'"],
        ),
        ("a:\n\tb: 1\n", [f"line 2, column 1: not valid YAML: {TAB}"]),
        (
            "a:\n- b: 1\n  c: 2\n  b: 3\nd: 1\nd: 2\n",
            ["line 4: a[0].b: set twice, first on line 2", "line 6: d: set twice, first on line 5"],
        ),
        ("a: 1\nb: &b\n  c: [*b]\n", ["line 2: what is anchored here holds an alias of itself"]),
        ("[" * 5000 + "]" * 5000, ["nested too deeply to be read"]),
        ("a: {2020-01-01: 1}", ["line 1: a.2020-01-01: a date is no key; quote it"]),
        ("a:\n  <<: {2020-01-01: 1}\n  b: 2", ["line 2: a.2020-01-01: a date is no key; quote it"]),
    ],
    ids=lambda one: one[:20] if isinstance(one, str) else "",
)
def test_what_is_wrong_is_told_with_its_place(text: str, told: list[str]) -> None:
    assert problems(text) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("2001-13-45", "'2001-13-45' is not allowed as timestamp"),  # no quotes: it is a date
        ("0x_", "'0x_' is not allowed as int"),
        ("1" * 5000, f"'{'1' * 119}... is not allowed as int"),
        ("!!int abc", "'abc' is not allowed as int"),
        ("!!bool x", "'x' is not allowed as bool"),
        ("!!timestamp x", "'x' is not allowed as timestamp"),
    ],
)
def test_a_value_that_is_none_of_its_type_has_its_place(value: str, told: str) -> None:
    for text, column in ((f"a: {value}\n", 4), (f"a: [1, {{b: {value}}}]\n", 12)):
        assert problems(f"# x\n{text}") == [f"line 2, column {column}: not valid YAML: {told}"]


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("a: \x07\n", "not valid YAML: unacceptable character #x0007"),
        ('a: "\\U00110000"', "not valid YAML: "),
        (
            "a: !!python/object:os.system {}\n",
            "line 1, column 4: not valid YAML: could not determine a constructor",
        ),
    ],
)
def test_what_yaml_forbids_is_an_error(text: str, begins: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(begins)


def test_an_alias_that_unfolds_without_end_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 7)]
    (problem,) = problems("\n".join(lines))
    assert problem.startswith("its aliases unfold to ")
    assert problem.endswith(" values; 100,000 are allowed")


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        (
            "base: &base {a: 1, b: 2}\nmore:\n  <<: *base\n  b: 3\n",
            [{"base": {"a": 1, "b": 2}, "more": {"a": 1, "b": 3}}],
        ),
        ("a: 1\n---\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("a: &a [1]\nb: [*a, *a]\n", [{"a": [1], "b": [[1], [1]]}]),
        ("a: qwen-\U0001f600", [{"a": "qwen-\U0001f600"}]),
        ("a: {1: 2, b: 3}", [{"a": {1: 2, "b": 3}}]),
    ],
)
def test_what_is_fine_is_read(text: str, documents: Any) -> None:
    assert parse_documents(text) == documents
