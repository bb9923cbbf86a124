"""What the reader of ``brimful check`` says about files that are no proper YAML."""

from pathlib import Path

import pytest

from controller.errors import ConfigError
from serve_app.source import parse_documents, read_documents


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_documents(text)
    return caught.value.problems


def test_a_missing_file_is_an_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot read it: No such file or directory"):
        read_documents(tmp_path / "none.yaml")


def test_a_folder_is_an_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot read it: Is a directory"):
        read_documents(tmp_path)


def test_a_binary_file_is_an_error(tmp_path: Path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"a: \xff\xfe")

    with pytest.raises(ConfigError, match="not UTF-8 text: byte 3 is invalid start byte"):
        read_documents(path)


@pytest.mark.parametrize("text", ["", "\n\n", "# a comment\n", "---\n---\n"])
def test_an_empty_file_is_an_error(text: str):
    assert problems(text) == ["empty: there is nothing to check"]


def test_a_syntax_error_has_its_line_and_column():
    assert problems("a: 1\nb: [1, 2\nc: 3\n") == [
        "line 3, column 2: not valid YAML: expected ',' or ']', but got ':'"
    ]


def test_a_tab_has_its_line_and_column():
    assert problems("a:\n\tb: 1\n") == [
        "line 2, column 1: not valid YAML: found character '\\t' that cannot start any token"
    ]


def test_a_character_that_yaml_forbids_is_an_error():
    (problem,) = problems("a: \x07\n")

    assert problem.startswith("not valid YAML: unacceptable character #x0007")


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
def test_a_value_that_is_none_of_its_type_has_its_place(value: str, told: str):
    for text, column in ((f"a: {value}\n", 4), (f"a: [1, {{b: {value}}}]\n", 12)):
        assert problems(f"# x\n{text}") == [f"line 2, column {column}: not valid YAML: {told}"]


def test_a_tag_that_would_build_an_object_is_refused():
    (problem,) = problems("a: !!python/object:os.system {}\n")

    assert problem.startswith("line 1, column 4: not valid YAML: could not determine a constructor")


def test_every_key_written_twice_is_named_with_both_lines():
    text = "a:\n- b: 1\n  c: 2\n  b: 3\nd: 1\nd: 2\n"

    assert problems(text) == [
        "line 4: a[0].b: set twice, first on line 2",
        "line 6: d: set twice, first on line 5",
    ]


def test_a_merge_that_overrides_a_key_is_no_repetition():
    text = "base: &base {a: 1, b: 2}\nmore:\n  <<: *base\n  b: 3\n"

    assert parse_documents(text) == [{"base": {"a": 1, "b": 2}, "more": {"a": 1, "b": 3}}]


def test_all_documents_are_returned():
    assert parse_documents("a: 1\n---\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]


def test_what_holds_itself_is_named_with_its_line():
    assert problems("a: 1\nb: &b\n  c: [*b]\n") == [
        "line 2: what is anchored here holds an alias of itself"
    ]


def test_an_alias_that_unfolds_without_end_is_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 7)]
    (problem,) = problems("\n".join(lines))

    assert problem.startswith("its aliases unfold to ")
    assert problem.endswith(" values; 100,000 are allowed")


def test_an_alias_used_twice_is_fine():
    assert parse_documents("a: &a [1]\nb: [*a, *a]\n") == [{"a": [1], "b": [[1], [1]]}]


def test_what_is_nested_too_deeply_is_refused():
    assert problems("[" * 5000 + "]" * 5000) == ["nested too deeply to be read"]


HALVES = "is not allowed: write the character itself, not halves of it (JSON's \\u escapes)"
NUL = "is not allowed: no text holds a NUL"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: {2020-01-01: 1}", "line 1: a.2020-01-01: a date is no key; quote it"),
        ('a:\n  b: "\\ud800"', f"line 2: a.b: '\\ud800' {HALVES}"),
        ('a: "\\ud83d\\ude00"', f"line 1: a: '\\ud83d\\ude00' {HALVES}"),
        ('a: ["\\0"]', f"line 1: a[0]: '\\x00' {NUL}"),
        ('"\\0": 1', f"line 1: top level: '\\x00' {NUL}"),
        ('"\\0"', f"line 1: top level: '\\x00' {NUL}"),
        (f"a: 0x{'f' * 3000}", "line 1: a: a number of more than 3,000 digits"),
        (f"a: 0{'7' * 3000}", "line 1: a: a number of more than 3,000 digits"),
        (
            "a:\n  <<: {2020-01-01: 1}\n  b: 2",
            "line 2: a.2020-01-01: a date is no key; quote it",
        ),
    ],
)
def test_what_nothing_could_print_is_refused(text: str, told: str):
    assert problems(text) == [told]


def test_a_character_beyond_unicode_is_an_error():
    (problem,) = problems('a: "\\U00110000"')
    assert problem.startswith("not valid YAML: ")


def test_characters_of_any_plane_are_fine():
    assert parse_documents("a: qwen-\U0001f600") == [{"a": "qwen-\U0001f600"}]


def test_a_number_as_a_key_is_fine():
    assert parse_documents("a: {1: 2, b: 3}") == [{"a": {1: 2, "b": 3}}]


def test_a_name_that_no_file_can_have_is_an_error():
    with pytest.raises(ConfigError, match="no file can have this name"):
        read_documents(Path("\0"))
    with pytest.raises(ConfigError, match="File name too long"):
        read_documents(Path("z" * 300))
