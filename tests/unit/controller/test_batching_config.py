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
    assert (config.policy, config.enforce, config.sla.itl_s) == ("adaptive", True, None)
    assert (config.period_s, config.lease_s, config.upper_bound(256)) == (0.5, 5.0, 256)


def test_a_config_survives_its_own_dump_and_milliseconds_become_seconds() -> None:
    config = parse_batching({"sla": {"itl_ms": 50}, "max_running": {"min": 2, "max": 40}})
    assert parse_batching(config.model_dump()) == config
    assert (config.sla.itl_s, config.upper_bound(256)) == (0.05, 40)


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
            {"exchange_hz": True},
            ".exchange_hz: True is not allowed: Input should be a number, not true or false",
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


@pytest.mark.parametrize("block", [[], "paper", 5])
def test_a_block_that_is_no_mapping_is_refused(block: Any) -> None:
    assert len(problems(block)) == 1
    assert problems(block)[0].startswith(f"batching: {block!r} is not allowed:")


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


def block(key: str, value: Any) -> dict[str, Any]:
    """``{"sla": {"itl_ms": 5}}`` of ``sla.itl_ms`` and 5; a lease that any rate allows."""
    outer, _, inner = key.rpartition(".")
    said = {outer: {inner: value}} if outer else {key: value}
    return said if key in ("lease_s", "exchange_hz") else {**said, "lease_s": 10}


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
        ("exchange_hz", [1, 4], [0.999, 4.001]),
        ("lease_s", [1.5, 60], [0.999, 60.001]),
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


def test_b_max_may_be_b_min() -> None:
    assert parse_batching({"max_running": {"min": 7, "max": 7}}).upper_bound(8) == 7


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


def test_paced_delivery_is_refused_with_what_to_use_instead() -> None:
    (found,) = problems({"sla": {"itl_ms": 50, "delivery": "paced"}})
    assert found.startswith("batching.sla: {'itl_ms': 50, 'delivery': 'paced'} is not allowed: ")
    assert "raise itl_ms, lower percentile" in found and "(classes)" in found


def test_delivery_by_gaps_is_taken_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match=r"batching.sla.delivery: 'gaps' has no effect"):
        config = parse_batching({"sla": {"itl_ms": 50, "delivery": "gaps"}})
    assert config == parse_batching({"sla": {"itl_ms": 50}})


def test_a_removed_key_is_refused_with_what_holds_now() -> None:
    assert problems({"paper": {"l0_period_s": 5, "alpha": 8, "chunk_min": 9}}) == [
        "batching.paper: {'l0_period_s': 5, 'alpha': 8, 'chunk_min': 9} is not allowed: chunk_min"
        " was removed: the token budget is 64 tokens at least; l0_period_s was removed: L0 is"
        " computed anew every 10 s"
    ]
