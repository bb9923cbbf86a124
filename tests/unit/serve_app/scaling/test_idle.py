"""What is remembered of a load while no request comes."""

from dataclasses import replace

from serve_app.scaling.decide import Scaler
from tests.unit.serve_app.scaling.test_decide import LOAD, one, reading, scaler

IDLE = replace(LOAD, running=0.0)


def test_after_idle_hours_a_load_is_provided_for_as_on_the_first_day() -> None:
    scale, busy, idle = scaler(start_s=100.0), reading(*[one(8.0)] * 2), reading(*[IDLE] * 2)
    usual = scale.decide(busy).desired
    hours = [busy] * 360 + [idle] * 720 + [busy]
    numbers = [scale.decide(replace(r, now_s=10.0 * k)).desired for k, r in enumerate(hours, 1)]
    # An hour of a load that did not move had made do with two; no error of it is known any more.
    assert (usual, numbers[359], numbers[-1]) == (3, 2, 3)


def test_an_idle_fleet_keeps_what_the_load_before_was_worth_at_the_target_utilization() -> None:
    def left(target_utilization: float) -> int:
        scale = Scaler(target_utilization, 20.0, 2.0, 30.0, 300.0, 3.0, 10.0)
        looks = [reading(*[one(2.0)] * 8, now_s=10.0 * k) for k in range(31)]
        looks += [reading(*[IDLE] * 8, now_s=310.0 + 10.0 * k) for k in range(10)]
        return [scale.decide(look).desired for look in looks][-1]

    assert (left(1.0), left(0.5)) == (3, 5)  # 16/s of 8/s each, and a few tenths more
