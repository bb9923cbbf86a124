"""Which model a request goes to that names none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.errors import ConfigError
from controller.validation import parse
from serve_app.auto_model import (
    AUTO,
    AutoModel,
    RequestFacts,
    Rule,
    choose,
    problems,
)

RULES = [
    {"model": "big", "prompt_tokens": 1000},
    {"model": "big", "tools": True},
    {"model": "sees", "media": True},
    {"model": "big", "headers": {"X-Quality": "high"}},
    {"model": "big", "service_tier": "gold"},
]


def auto(*rules: dict[str, Any], **more: Any) -> AutoModel:
    return parse(AutoModel, {"default": "small", "rules": list(rules), **more}, AUTO)


def goes_to(body: dict[str, Any], headers: dict[str, str] | None = None) -> str:
    return choose(auto(*RULES), RequestFacts.of(body, headers or {}))


def chat(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": part} for part in parts]}


def test_the_first_rule_that_matches_says_which_model() -> None:
    assert goes_to(chat("a river")) == "small"
    assert goes_to(chat("x" * 3999)) == "small"
    assert goes_to(chat("x" * 2000, "x" * 2000)) == "big"
    assert goes_to({"prompt": "x" * 4000}) == "big"
    assert goes_to({"prompt": [5] * 1000}) == "big"
    assert goes_to({"prompt": [5] * 999}) == "small"
    assert goes_to(chat("a") | {"tools": [{"type": "function"}]}) == "big"
    assert goes_to(chat("a") | {"tools": []}) == "small"
    image = {"type": "image_url", "image_url": {"url": "data:..."}}
    assert goes_to(chat([{"type": "text", "text": "what is it?"}, image])) == "sees"
    assert goes_to(chat([{"type": "text", "text": "x" * 4000}])) == "big"
    assert goes_to(chat("a"), {"x-quality": "high"}) == "big"
    assert goes_to(chat("a"), {"x-quality": "low"}) == "small"
    assert goes_to(chat("a") | {"service_tier": "gold"}) == "big"


def test_the_class_is_the_one_that_admission_takes() -> None:
    named, of_key = "x-llm-d-inference-objective", "x-brimful-classes"
    assert goes_to(chat("a"), {named: "gold"}) == "big"
    assert goes_to(chat("a") | {"service_tier": "gold"}, {named: "late"}) == "small"
    assert goes_to(chat("a"), {of_key: "gold,late"}) == "big"
    assert goes_to(chat("a") | {"service_tier": "auto"}, {of_key: "gold,late"}) == "big"
    assert goes_to(chat("a") | {"service_tier": "late"}, {of_key: "gold,late"}) == "small"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"prompt_tokens": 0}, "prompt_tokens"),
        ({"prompt_tokens": True}, "prompt_tokens"),
        ({"tools": "maybe"}, "tools"),
        ({"media": 3}, "media"),
        ({"service_tier": 5}, "service_tier"),
        ({"headers": {"x-quality": 1}}, "headers"),
        ({"headers": {"x quality": "1"}}, "headers"),
        ({"headers": {"x-a": "1", "X-A": "1"}}, "a name is given twice"),
        ({"headers": ["x-a"]}, "headers"),
        ({"idle_frac": 0.5}, "idle_frac was removed: rules go by what is asked alone"),
    ],
)
def test_a_condition_that_cannot_be_is_named(rule: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=rf"auto_model\.rules\[0\].*{said}"):
        auto({"model": "big", **rule})


MODELS = ["small", "big", "sees"]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([{"model": "bigg", "tools": True}], "rules[0].model: 'bigg' is not allowed; allowed: 's"),
        (
            [{"model": "big"}],
            "rules[0]: this rule always matches; name the model as auto_model.default",
        ),
        (
            [
                {"model": "big", "prompt_tokens": 100},
                {"model": "sees", "prompt_tokens": 500, "media": True},
            ],
            "rules[1]: this rule never matches: rules[0] takes all of its requests",
        ),
        (
            [
                {"model": "big", "headers": {"X-A": "1"}},
                {"model": "sees", "headers": {"x-a": "1", "x-b": "2"}},
            ],
            "rules[1]: this rule never matches",
        ),
    ],
)
def test_rules_that_name_nothing_never_match_or_always_do(
    rules: list[dict[str, Any]], said: str
) -> None:
    (found,) = problems(auto(*rules), MODELS, AUTO)
    assert said in found


def test_sound_rules_are_no_problem_and_wrong_keys_are_named() -> None:
    assert problems(auto(*RULES), MODELS, AUTO) == []
    (found,) = problems(auto(name="big"), MODELS, AUTO)
    assert "'big' is not allowed: a model has this name" in found
    with pytest.raises(ConfigError, match=r"auto_model\.rules\[0\]: unknown key 'prompt_token'"):
        auto({"model": "big", "prompt_token": 5})
    with pytest.raises(ConfigError, match=r"auto_model\.default: required key is missing"):
        parse(AutoModel, {}, AUTO)


rules = st.builds(
    Rule,
    model=st.sampled_from(MODELS),
    prompt_tokens=st.none() | st.integers(1, 4),
    tools=st.none() | st.booleans(),
    media=st.none() | st.booleans(),
    service_tier=st.none() | st.sampled_from(["a", "b"]),
    headers=st.dictionaries(st.sampled_from(["x", "Y"]), st.sampled_from(["1", "2"])),
)
asked = st.builds(
    RequestFacts,
    prompt_tokens=st.integers(0, 5),
    tools=st.booleans(),
    media=st.booleans(),
    service_tier=st.none() | st.sampled_from(["a", "b"]),
    headers=st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"])),
)


@given(st.lists(rules, max_size=5), asked)
def test_a_rule_that_is_said_never_to_match_never_does(
    some: list[Rule], request: RequestFacts
) -> None:
    whole = AutoModel(default="small", rules=tuple(some))
    never = [
        k
        for k in range(len(some))
        if f"rules[{k}]: this rule never matches" in " ".join(problems(whole, MODELS, AUTO))
    ]
    first = next((k for k, rule in enumerate(some) if rule.matches(request)), None)
    assert first not in never
