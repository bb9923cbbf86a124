"""The ``classes`` and ``admission`` blocks: one line per wrong key, one default."""

import pytest

from controller.classes import one_class, parse_admission, parse_classes, unknown_class
from controller.errors import ConfigError

THREE = {
    "interactive": {"ttft_ms": 500, "itl_ms": 50},
    "standard": {"priority": 10, "default": True},
    "batch": {"priority": 20, "sheddable": True, "queue_timeout_s": 120},
}


def problems(data: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_classes(data)
    return caught.value.problems


def test_names_bring_their_promises() -> None:
    classes = parse_classes(THREE)
    assert classes.default == "standard"
    assert [c.priority for c in classes.by_name.values()] == [0, 10, 20]
    assert [c.deadline_s for c in classes.by_name.values()] == [0.5, 30.0, 120.0]


def test_over_the_wire_they_stay_the_same() -> None:
    classes = parse_classes(THREE)
    assert parse_classes(classes.to_wire()) == classes


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (None, "standard"),
        ("auto", "standard"),
        ("default", "standard"),
        ("batch", "batch"),
        ("Batch", None),
        ("flex", None),
        ("", None),
    ],
)
def test_a_name_means_a_class_or_none(said: str | None, meant: str | None) -> None:
    assert parse_classes(THREE).named(said) == meant


def test_a_class_of_ones_own_may_be_called_default() -> None:
    classes = parse_classes({"default": {"priority": 5}, "main": {"default": True}})
    assert classes.named("default") == "default"
    assert classes.named("auto") == "main"


def test_one_class_alone_is_the_default() -> None:
    assert parse_classes({"only": None}).default == "only"
    assert one_class(200).by_name["default"].deadline_s == 0.2


def test_in_slowed_time_the_latencies_are_slowed() -> None:
    slowed = parse_classes(THREE).slowed(3)
    assert slowed.by_name["interactive"].ttft_ms == 1500
    assert slowed.by_name["interactive"].itl_ms == 150
    assert slowed.by_name["batch"].ttft_ms is None
    # No more than may be said.
    longest = parse_classes({"a": {"itl_ms": 86_400_000, "ttft_ms": 86_400_000}}).slowed(3)
    assert parse_classes(longest.to_wire()) == longest


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"ttft": 5}, ": unknown key 'ttft'; did you mean 'ttft_ms'?"),
        *((
            {key: 86_400_001},
            f".{key}: 86400001 is not allowed: Input should be less than or equal to 86400000",
        ) for key in ("itl_ms", "ttft_ms")),
        ({"ttft_ms": -1}, ".ttft_ms: -1 is not allowed: Input should be greater than 0"),
        (
            {"queue_timeout_s": 1e9},
            ".queue_timeout_s: 1000000000.0 is not allowed: Input should be less than or equal to",
        ),
        ({"priority": 2**40}, f".priority: {2**40} is not allowed: Input should be less than or"),
        (5, ": 5 is not allowed: Input should be a valid dictionary"),
    ],
)  # fmt: skip
def test_a_wrong_key_is_named_in_one_line(settings: object, line: str) -> None:
    (said,) = problems({"a": settings})
    assert said.startswith(f"classes.a{line}")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        *((it, f"{it!r} is not allowed: a mapping of names to classes")
          for it in ({}, [], "interactive", None)),
        ({"a": {}, "b": {}}, "one class must have default: true, got none"),
        (
            {"a": {"default": True}, "b": {"default": True}},
            "one class must have default: true, got a, b",
        ),
    ],
)  # fmt: skip
def test_what_is_no_set_of_classes_is_named(data: object, line: str) -> None:
    assert problems(data) == [f"classes: {line}"]


@pytest.mark.parametrize("name", ["auto", "", "a b", "-a", "ü", "x" * 65, 7])
def test_a_name_that_no_header_can_carry_is_refused(name: object) -> None:
    (said,) = problems({name: {}})
    assert said.startswith(f"classes: {name!r} is not allowed as a name")


def test_every_problem_is_named_at_once() -> None:
    assert len(problems({"a": {"prio": 1}, "b": {"ttft_ms": 0}, "auto": {}})) == 3


def test_admission_has_defaults_and_bounds() -> None:
    assert parse_admission(None).shed_at == 0.9
    with pytest.raises(ConfigError) as caught:
        parse_admission({"shed_at": 1.5, "max_wait": 3})
    assert len(caught.value.problems) == 2


def test_a_client_is_told_the_known_classes() -> None:
    classes = parse_classes(THREE)
    assert unknown_class("batsh", classes) == (
        "'batsh' is not a class of this model; known: interactive, standard, batch;"
        " did you mean 'batch'?"
    )
    assert len(unknown_class("z" * 10_000, classes)) < 200


def test_a_class_has_the_names_that_it_is_given() -> None:
    classes = parse_classes(
        {"interactive": {"default": True, "aliases": ["priority"]}, "batch": {"aliases": ["flex"]}}
    )
    assert [classes.named(n) for n in ("flex", "priority", "batch", "scale", "default")] == [
        *("batch", "interactive", "batch", None, "interactive")
    ]
    assert "known: interactive (priority), batch (flex)" in unknown_class("scale", classes)
    assert parse_classes(classes.to_wire()) == classes


@pytest.mark.parametrize(
    ("alias", "said"),
    [
        ("batch", "class 'batch' has that name"),
        ("flex", "class 'batch' has that name"),
        ("auto", "not 'auto' or 'default'"),
        ("default", "not 'auto' or 'default'"),
        ("", "a name as those of classes"),
    ],
)
def test_an_alias_that_means_two_things_is_named(alias: str, said: str) -> None:
    blocks = {"batch": {"aliases": ["flex"]}, "gold": {"default": True, "aliases": [alias]}}
    with pytest.raises(ConfigError, match=f"classes.gold.aliases: {alias!r} is not allowed: .*"):
        parse_classes(blocks)
    with pytest.raises(ConfigError, match=said):
        parse_classes(blocks)
