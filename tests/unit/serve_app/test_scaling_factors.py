"""Ray Serve's factors around the policy: they change steps, not a number that is to stay."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.serve._private.autoscaling_state import _apply_autoscaling_config
from ray.serve.config import AutoscalingConfig

from serve_app.autoscaling import _through_factors
from tests.unit.serve_app.test_autoscaling import Context, metrics, policy, replica


def config(**settings: Any) -> AutoscalingConfig:
    at_once = {"upscale_delay_s": 0, "downscale_delay_s": 0}
    return AutoscalingConfig(**({"min_replicas": 1, "max_replicas": 40} | at_once | settings))


def looks(target: int, current: int, rates: list[float], n: int = 20, **settings: Any) -> list[int]:
    """The target at each of Ray Serve's looks, ten a second; nothing starts meanwhile."""
    staged = _apply_autoscaling_config(policy(start_s=100, peak_s=300))
    seen = metrics(*(replica(arrivals=per_s) for per_s in rates))
    targets, state = [], {}
    for look in range(n):
        context = Context(seen, current, target, look / 10, state, config=config(**settings))
        target, state = staged(context)
        targets.append(int(target))
    return targets


@pytest.mark.parametrize("key", ["upscaling_factor", "upscale_smoothing_factor"])
def test_a_number_that_is_to_stay_stays_while_replicas_start(key: str) -> None:
    """Four run and six were asked for; nothing more is wanted."""
    assert set(looks(6, 4, [1.0] * 4, **{key: 2.0})) == {6}
    assert set(looks(6, 4, [], **{key: 1.25})) == {6}  # nothing is known of them


def test_a_step_up_is_made_by_the_factor_once() -> None:
    once = looks(4, 4, [11.0] * 4)
    assert set(once) == {once[0]}
    for factor in (1.25, 1.5, 2.0):
        more = looks(4, 4, [11.0] * 4, upscaling_factor=factor)
        assert max(more) <= 4 + factor * (once[0] - 4) + 1
        assert set(more) == {more[0]} and more[0] > once[0]


def test_a_start_that_is_still_needed_is_not_called_off() -> None:
    """Two of eight were lost: eight are to stay, and half of what is missing would be seven."""
    assert set(looks(8, 6, [7.0] * 6, upscaling_factor=0.5)) == {8}


def test_a_factor_damps_the_way_down_as_ever() -> None:
    given = config(downscaling_factor=0.2)
    assert _through_factors(2, Context(None, 10, 10, config=given)) == 2  # 9 by Ray's factor
    assert _through_factors(2, Context(None, 10, 12, config=given)) == 2


@given(
    desired=st.integers(0, 60),
    target=st.integers(0, 60),
    current=st.integers(0, 60),
    up=st.sampled_from([0.01, 0.3, 0.8, 1.0, 1.25, 2.0, 10.0]),
    down=st.sampled_from([0.01, 0.3, 0.8, 1.0, 1.25, 2.0]),
)
def test_what_ray_makes_of_it_is_on_the_same_side_of_the_target(
    desired: int, target: int, current: int, up: float, down: float
) -> None:
    given = config(min_replicas=0, upscaling_factor=up, downscaling_factor=down, max_replicas=60)
    context: Any = Context(None, current, target, config=given)
    number = _through_factors(desired, context)
    made = _apply_autoscaling_config(lambda ctx: (number, {}))(context)[0]
    if desired == target:
        assert made == target
    elif desired > target:
        assert made >= target
    else:
        assert made <= target
    if up == down == 1 or current == 0:
        assert number == desired


def test_a_context_without_a_configuration_changes_nothing() -> None:
    assert _through_factors(7, Context(None, 3, 5)) == 7
