"""The ``batching`` block: its defaults, and one exact message per mistake."""

from typing import Any

import pytest

from controller.config import BatchingConfig, PaperOptions, StaticOptions, parse_batching
from controller.errors import ConfigError


def problems(block: Any, where: str = "batching") -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse_batching(block, where)
    return refused.value.problems


@pytest.mark.parametrize("nothing", [None, {}])
def test_nothing_said_is_all_defaults(nothing: Any) -> None:
    config = parse_batching(nothing)
    assert config == BatchingConfig()
    assert (config.policy, config.enforce) == ("adaptive", True)
    assert (config.period_s, config.lease_s) == (0.5, 5.0)
    assert config.sla.itl_s is None


def test_milliseconds_become_seconds() -> None:
    assert parse_batching({"sla": {"itl_ms": 50}}).sla.itl_s == 0.05


def test_a_config_survives_its_own_dump() -> None:
    config = parse_batching({"sla": {"itl_ms": 50}, "max_running": {"min": 2, "max": 40}})
    assert parse_batching(config.model_dump()) == config


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ({"polcy": "paper"}, "batching: unknown key 'polcy'; did you mean 'policy'?"),
        ({"sla": {"itl": 50}}, "batching.sla: unknown key 'itl'; did you mean 'itl_ms'?"),
        (
            {"sla": {"budget": 1}},
            "batching.sla: unknown key 'budget'; allowed: delivery, itl_ms, percentile, ttft_ms",
        ),
        (
            {"paper": {"epsilon_d": 1}},
            "batching.paper: unknown key 'epsilon_d'; did you mean 'epsilon_d_ms'?",
        ),
        (
            {"sla": {"itl_ms": 0}},
            "batching.sla.itl_ms: 0 is not allowed: Input should be greater than 0",
        ),
        (
            {"sla": {"itl_ms": 1e200, "delivery": "paced"}},
            "batching.sla.itl_ms: 1e+200 is not allowed: Input should be less than or equal to"
            " 86400000",
        ),
        (
            {"sla": {"ttft_ms": 86_400_001}},
            "batching.sla.ttft_ms: 86400001 is not allowed: Input should be less than or equal to"
            " 86400000",
        ),
        (
            {"max_running": {"max": True}},
            "batching.max_running.max: True is not allowed: Input should be a number, not true or"
            " false",
        ),
        (
            {"exchange_hz": True},
            "batching.exchange_hz: True is not allowed: Input should be a number, not true or"
            " false",
        ),
        (
            {"sla": {"ttft_ms": -5}},
            "batching.sla.ttft_ms: -5 is not allowed: Input should be greater than 0",
        ),
        (
            {"sla": {"itl_ms": float("nan")}},
            "batching.sla.itl_ms: nan is not allowed: Input should be a finite number",
        ),
        (
            {"sla": {"percentile": 100}},
            "batching.sla.percentile: 100 is not allowed: Input should be less than 100",
        ),
        (
            {"max_running": {"min": 9, "max": 4}},
            "batching.max_running: {'min': 9, 'max': 4} is not allowed: max must be at least min"
            " (9), got 4",
        ),
        (
            {"max_running": {"min": 0}},
            "batching.max_running.min: 0 is not allowed: Input should be greater than or equal to"
            " 1",
        ),
        (
            {"policy": "papr"},
            "batching.policy: 'papr' is not allowed:"
            " Input should be 'static', 'paper' or 'adaptive'",
        ),
        (
            {"overflow_probability": 0.5},
            "batching.overflow_probability: 0.5 is not allowed: Input should be less than 0.5",
        ),
        (
            {"exchange_hz": 10},
            "batching.exchange_hz: 10 is not allowed: Input should be less than or equal to 4",
        ),
        (
            {"paper": {"alpha": 0}},
            "batching.paper.alpha: 0 is not allowed: Input should be greater than or equal to 1",
        ),
        (
            {"paper": {"memory": "guess"}},
            "batching.paper.memory: 'guess' is not allowed: Input should be 'linear', 'exact' or"
            " 'live'",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place_its_value_and_what_is_allowed(
    block: dict[str, Any], problem: str
) -> None:
    assert problems(block) == [problem]


def test_a_lease_that_one_lost_report_would_end_is_refused() -> None:
    assert problems({"lease_s": 1, "exchange_hz": 1}) == [
        "batching: {'lease_s': 1, 'exchange_hz': 1} is not allowed: lease_s must be at least 3"
        " exchange periods, 3 s at exchange_hz: 1, got 1"
    ]
    assert len(problems({"lease_s": 1.49})) == 1


@pytest.mark.parametrize(("lease_s", "hz"), [(1.0, 4), (1.5, 2), (3.0, 1), (2.0, 1.5)])
def test_a_lease_of_three_exchange_periods_is_allowed(lease_s: float, hz: float) -> None:
    assert parse_batching({"lease_s": lease_s, "exchange_hz": hz}).lease_s == lease_s


def test_all_mistakes_are_named_together() -> None:
    found = problems({"sla": {"itl_ms": 0}, "lease_s": 0, "enforced": True})
    assert sorted(line.split(":")[0] for line in found) == [
        "batching",
        "batching.lease_s",
        "batching.sla.itl_ms",
    ]


def test_a_mistake_is_named_where_the_block_stands() -> None:
    found = problems({"sla": {"itl_ms": 0}}, "llm_configs[2].batching")
    assert found[0].startswith("llm_configs[2].batching.sla.itl_ms: 0 ")


@pytest.mark.parametrize("block", [[], "paper", 5])
def test_a_block_that_is_no_mapping_is_refused(block: Any) -> None:
    assert len(problems(block)) == 1
    assert problems(block)[0].startswith(f"batching: {block!r} is not allowed:")


def test_b_max_is_the_engines_size_unless_said() -> None:
    assert parse_batching(None).upper_bound(256) == 256
    assert parse_batching({"max_running": {"max": 40}}).upper_bound(256) == 40
    assert parse_batching({"max_running": {"max": 256}}).upper_bound(256) == 256


@pytest.mark.parametrize("key", ["min", "max"])
def test_a_bound_above_the_engines_size_is_refused(key: str) -> None:
    config = parse_batching({"max_running": {key: 512}})
    with pytest.raises(ConfigError) as refused:
        config.upper_bound(256)
    assert refused.value.problems == [
        f"batching.max_running.{key}: 512 is above max_num_seqs=256, the size the engine is"
        " started with; lower it or raise max_num_seqs"
    ]


def test_every_key_says_what_it_is() -> None:
    for model in (BatchingConfig, PaperOptions, StaticOptions):
        for name, field in model.model_fields.items():
            nested = hasattr(field.annotation, "model_fields")
            assert nested or field.description or name == "policy", name


def test_a_removed_key_is_accepted_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match=r"batching.prefill_floor: 0.02 has no effect any more"):
        config = BatchingConfig.model_validate({"prefill_floor": 0.02, "enforce": False})
    assert config == BatchingConfig(enforce=False)
