"""The ``batching`` and ``classes`` blocks: defaults, bounds, one message per mistake."""

from typing import Any

import msgspec
import pytest

from controller.classes import one_class, parse_classes, unknown_class
from controller.config import BatchingConfig, parse_batching
from controller.errors import ConfigError
from controller.records import from_wire, to_wire
from controller.request_slo import RequestSlo, differ


def problems(block: Any, where: str = "batching") -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse_batching(block, where)
    return refused.value.problems


@pytest.mark.parametrize("nothing", [None, {}])
def test_nothing_said_is_all_defaults(nothing: Any) -> None:
    config = parse_batching(nothing)
    assert config == BatchingConfig()
    assert (config.policy, config.enforce, config.sla.itl_s) == ("adaptive", True, None)
    assert (config.period_s, config.lease_s, config.upper_bound(256)) == (0.5, 5.0, 256)


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ({"polcy": "paper"}, ": unknown key 'polcy'; did you mean 'policy'?"),
        ({"sla": {"itl": 50}}, ".sla: unknown key 'itl'; did you mean 'itl_ms'?"),
        (
            {"sla": {"budget": 1}},
            ".sla: unknown key 'budget'; allowed: itl_ms, percentile, ttft_ms",
        ),
        ({"paper": {"epsilon_d": 1}}, ".paper: unknown key 'epsilon_d'; did you mean"),
        ({"sla": {"itl_ms": 0}}, ".sla.itl_ms: 0 is not allowed: Input should be greater than 0"),
        (
            {"sla": {"itl_ms": 1e200}},
            ".sla.itl_ms: 1e+200 is not allowed: Input should be less than or equal to 86400000",
        ),
        (
            {"max_running": {"max": True}},
            ".max_running.max: True is not allowed: Input should be a number, not true or false",
        ),
        (
            {"lease_s": True},
            ".lease_s: True is not allowed: Input should be a number, not true or false",
        ),
        (
            {"sla": {"itl_ms": float("nan")}},
            ".sla.itl_ms: nan is not allowed: Input should be a finite number",
        ),
        (
            {"max_running": {"min": 9, "max": 4}},
            ".max_running: {'min': 9, 'max': 4} is not allowed: max must be at least min (9)",
        ),
        (
            {"policy": "papr"},
            ".policy: 'papr' is not allowed: Input should be 'static', 'paper' or 'adaptive'",
        ),
        ({"paper": {"memory": "guess"}}, ".paper.memory: 'guess' is not allowed: Input should be"),
    ],
)
def test_a_mistake_is_named_with_its_place_its_value_and_what_is_allowed(block, problem):
    for where in ("batching", "llm_configs[2].batching"):
        (found,) = problems(block, where)
        assert found.startswith(where + problem)


def test_a_lease_that_one_lost_report_would_end_is_refused() -> None:
    assert len(problems({"lease_s": 1.49})) == 1


@pytest.mark.parametrize("key", ["min", "max"])
def test_a_bound_above_the_engines_size_is_refused(key: str) -> None:
    config = parse_batching({"max_running": {key: 512}})
    with pytest.raises(ConfigError) as refused:
        config.upper_bound(256)
    assert refused.value.problems == [
        f"batching.max_running.{key}: 512 is above max_num_seqs=256, the size the engine is"
        " started with; lower it or raise max_num_seqs"
    ]


def block(key: str, value: Any) -> dict[str, Any]:
    """``{"sla": {"itl_ms": 5}}`` of ``sla.itl_ms`` and 5."""
    outer, _, inner = key.rpartition(".")
    return {outer: {inner: value}} if outer else {key: value}


@pytest.mark.parametrize(
    ("key", "allowed", "refused"),
    [
        ("sla.itl_ms", [1e-9, 86_400_000], [0, -1, 86_400_001]),
        ("sla.ttft_ms", [1e-9, 86_400_000], [0, -1, 86_400_001]),
        ("sla.percentile", [50, 99.999], [49.999, 100]),
        ("max_running.min", [1], [0]),
        ("max_running.max", [1], [0]),
        ("static.max_num_batched_tokens", [1], [0]),
        ("paper.alpha", [1], [0]),
        ("paper.delta", [0], [-1]),
        ("paper.epsilon_d_ms", [0], [-0.001]),
        ("overflow_probability", [1e-9, 0.499], [0, 0.5]),
        ("lease_s", [1.5, 60], [1.499, 60.001]),
    ],
)
def test_a_value_is_allowed_up_to_its_ends_and_not_beyond(key, allowed, refused):
    for value in allowed:
        parse_batching(block(key, value))
    for value in refused:
        with pytest.raises(ConfigError) as error:
            parse_batching(block(key, value))
        assert error.value.problems[0].startswith(f"batching.{key}: {value} is not allowed")


@pytest.mark.parametrize(
    ("share", "itl_ms", "at_most"),
    [(None, None, None), (0.1, None, 0.1), (None, 50, 0.05), (0.1, 50, 0.1)],
)
def test_the_share_that_may_be_preempted_is_the_one_set_or_what_an_sla_lets_be_late(
    share: float | None, itl_ms: float | None, at_most: float | None
) -> None:
    sla = {"itl_ms": itl_ms, "percentile": 95}
    config = parse_batching({"overflow_probability": share, "sla": sla})
    assert config.preempted_at_most == pytest.approx(at_most)
    # Eqs. 12 and 14 need one in any case.
    assert config.epsilon_m == (0.02 if share is None else share)


@pytest.mark.parametrize(
    ("policy", "said", "steps_aside"),
    [
        ("adaptive", None, True),
        ("adaptive", False, False),
        ("paper", None, False),
        ("paper", True, True),
        ("static", None, False),
    ],
)
def test_adaptive_steps_aside_unless_it_is_said(policy, said, steps_aside):
    assert parse_batching({"policy": policy, "step_aside": said}).steps_aside is steps_aside


def test_a_removed_key_is_refused_with_what_holds_now() -> None:
    assert problems({"paper": {"l0_period_s": 5, "alpha": 8, "chunk_min": 9}}) == [
        "batching.paper: {'l0_period_s': 5, 'alpha': 8, 'chunk_min': 9} is not allowed: chunk_min"
        " was removed: the token budget is 64 tokens at least; l0_period_s was removed: L0 is"
        " computed anew every 10 s"
    ]


THREE = {
    "interactive": {"ttft_ms": 500, "itl_ms": 50},
    "standard": {"priority": 10, "default": True},
    "batch": {"priority": 20, "sheddable": True, "queue_timeout_s": 120},
}


def class_problems(data: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_classes(data)
    return caught.value.problems


def test_names_bring_their_promises() -> None:
    classes = parse_classes(THREE)
    assert classes.default == "standard"
    assert [c.priority for c in classes.by_name.values()] == [0, 10, 20]
    assert [c.deadline_s for c in classes.by_name.values()] == [0.5, 30.0, 120.0]


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
    (said,) = class_problems({"a": settings})
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
    assert class_problems(data) == [f"classes: {line}"]


@pytest.mark.parametrize("name", ["auto", "", "a b", "-a", "ü", "x" * 65, 7])
def test_a_name_that_no_header_can_carry_is_refused(name: object) -> None:
    (said,) = class_problems({name: {}})
    assert said.startswith(f"classes: {name!r} is not allowed as a name")


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
        ("", "a name as classes have"),
    ],
)
def test_an_alias_that_means_two_things_is_named(alias: str, said: str) -> None:
    blocks = {"batch": {"aliases": ["flex"]}, "gold": {"default": True, "aliases": [alias]}}
    with pytest.raises(ConfigError, match=f"classes.gold.aliases: {alias!r} is not allowed: .*"):
        parse_classes(blocks)
    with pytest.raises(ConfigError, match=said):
        parse_classes(blocks)


@pytest.mark.parametrize(
    "one",
    [RequestSlo(), RequestSlo(0.05, 95.0, 2.0), RequestSlo(ttft_s=6.0), RequestSlo(itl_s=0.1)],
)
def test_it_gets_through_the_engines_message_as_it_was(one: RequestSlo) -> None:
    told = msgspec.msgpack.decode(msgspec.msgpack.encode(to_wire(one)))
    assert from_wire(RequestSlo, told) == one


@pytest.mark.parametrize(
    ("itls_ms", "so"),
    [
        ((50, 100), True),
        ((50, None), True),
        ((50, 50), False),
        ((None, None), False),
        ((9,), False),
    ],
)
def test_classes_differ_in_their_time_between_tokens(itls_ms: tuple[float], so: bool) -> None:
    block = {f"c{k}": {"itl_ms": ms, "priority": k} for k, ms in enumerate(itls_ms)}
    block["c0"]["default"] = True
    assert differ(parse_classes(block)) is so
    assert not differ(None)
