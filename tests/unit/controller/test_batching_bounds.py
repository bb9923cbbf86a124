"""The ``batching`` block's defaults and the ends of what each key allows, written out."""

from typing import Any

import pytest

from controller.config import BatchingConfig, parse_batching
from controller.errors import ConfigError

DEFAULTS = {
    "policy": "adaptive",
    "sla": {"itl_ms": None, "ttft_ms": None, "percentile": 99.0, "delivery": "gaps"},
    "max_running": {"min": 1, "max": None},
    "overflow_probability": None,
    "enforce": True,
    "step_aside": None,
    "exchange_hz": 2.0,
    "lease_s": 5.0,
    "static": {"max_num_batched_tokens": None},
    "paper": {
        "memory": "linear",
        "l0": "printed",
        "l0_period_s": 10.0,
        "live_factor": 0.95,
        "units": "tokens",
        "alpha": 16,
        "delta": 4,
        "epsilon_d_ms": 2.0,
        "size_chunk": False,
        "chunk_min": 64,
        "chunk_alpha": 64,
        "chunk_delta": 16,
    },
}


def test_the_defaults_are_these() -> None:
    found = BatchingConfig().model_dump()
    assert {key: found[key] for key in DEFAULTS} == DEFAULTS


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
        ("paper.l0_period_s", [1e-9], [0]),
        ("paper.live_factor", [1e-9, 1.0], [0, 1.001]),
        ("paper.alpha", [1], [0]),
        ("paper.delta", [0], [-1]),
        ("paper.epsilon_d_ms", [0], [-0.001]),
        ("paper.chunk_min", [1], [0]),
        ("paper.chunk_alpha", [1], [0]),
        ("paper.chunk_delta", [0], [-1]),
        ("overflow_probability", [1e-9, 0.499], [0, 0.5]),
        ("exchange_hz", [1, 4], [0.999, 4.001]),
        ("lease_s", [1.5, 60], [0.999, 60.001]),
    ],
)
def test_a_value_is_allowed_up_to_its_ends_and_not_beyond(
    key: str, allowed: list[float], refused: list[float]
) -> None:
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


def test_b_min_may_be_the_engines_size() -> None:
    assert parse_batching({"max_running": {"min": 256}}).upper_bound(256) == 256


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
def test_adaptive_steps_aside_unless_it_is_said(
    policy: str, said: bool | None, steps_aside: bool
) -> None:
    assert parse_batching({"policy": policy, "step_aside": said}).steps_aside is steps_aside


def test_a_configuration_does_not_change_and_knows_no_other_keys() -> None:
    config = BatchingConfig()
    with pytest.raises(ValueError, match="frozen"):
        config.enforce = False
