"""Replicas of a second, cheaper group take what is above the base, and may be taken away."""

import numpy as np
import pytest

from controller.errors import ConfigError
from simulator.fleet.crew import BASE, SPOT, Crew, Overflow, parse_overflow
from simulator.fleet.outcome import Outcome
from simulator.fleet.simulate import simulate
from simulator.fleet.state import DRAINING, READY
from simulator.fleet.traffic import Requests
from tests.unit.simulator.fleet.fleets import GROUND, requests, scripted, standing, steadily


def run(asked: Requests, overflow: Overflow, *steps: tuple[float, int]) -> Outcome:
    return simulate(
        asked,
        scripted(*steps),
        GROUND,
        seconds=float(np.ceil(asked.arrival_s[-1])),
        replicas=steps[0][1],
        reads=(),
        overflow=overflow,
    )


def test_what_is_wanted_above_the_base_is_of_the_second_group_and_goes_first() -> None:
    steps = [(0.0, 1), (30.0, 3), (60.0, 1)]
    outcome = run(
        steadily(5.0, 100.0, 100, 10), Overflow(base=1, price=0.25, losses_per_h=0.0), *steps
    )
    assert outcome.overflow_s == pytest.approx(2 * 30, abs=2 * 5.1)  # asked for at 30 s
    assert outcome.replica_s - outcome.overflow_s == pytest.approx(100)
    cost_s = 100 + 0.25 * outcome.overflow_s
    assert outcome.cost_hours(0.25) == pytest.approx(cost_s / 3600)
    assert outcome.lost == 0


def test_with_notice_the_loss_of_replicas_costs_no_request() -> None:
    # Forty losses an hour of each: with three of them, some ten in five minutes.
    asked = steadily(20.0, 300.0, 100, 50)
    crew = Overflow(base=1, losses_per_h=40.0, notice_s=30.0)
    outcome = run(asked, crew, (0.0, 4))
    assert (np.diff(outcome.ready) < 0).sum() >= 5 and outcome.ready[-5:].max() <= 4
    assert not np.isnan(outcome.end_s).any() and outcome.lost == 0


def test_who_has_no_byte_yet_gets_a_second_chance_and_who_has_is_lost() -> None:
    asked = requests(*[(0.0, 1000, 400)] * 12, (50.0, 10, 2))
    fleet, engine = standing(asked, 0, slots=[3])
    fleet.status[3] = 0
    crew = Crew(fleet, engine, 20.0, 1, Overflow(base=0, losses_per_h=1e-9, notice_s=1.0))
    crew._ends[0] = (0.5, False)  # told to go after half a second, gone a second later
    crew.scale_to(2, 0.0)
    crew.work_until(1.4)
    assert crew.ready == 0 and crew.lost == 0
    crew.work_until(30.0)
    answered = int((fleet.first_s < 1.5 + 0.1).sum())
    assert crew.taken == 1 and 0 < crew.lost <= answered < 12
    assert crew.resent == 12 - crew.lost
    crew.work_until(200.0)
    assert int(np.isnan(fleet.end_s).sum()) == crew.lost


def test_a_replica_that_was_taken_is_paid_for_until_it_is_gone() -> None:
    asked = requests((0.0, 1000, 400), (50.0, 10, 2))
    fleet, engine = standing(asked, 0, slots=[3])
    fleet.status[3] = 0
    crew = Crew(fleet, engine, 20.0, 1, Overflow(base=0, losses_per_h=1e-9, notice_s=3.0))
    crew._ends[0] = (1.0, False)
    crew.work_until(10.0)
    spent_s = crew.replica_s(10.0)
    assert spent_s[BASE] == 0 and spent_s[SPOT] == pytest.approx(4.0)


def test_of_several_starts_the_newest_is_called_off_first() -> None:
    fleet, engine = standing(requests((50.0, 10, 2)), 0)
    crew = Crew(fleet, engine, 20.0, 1)
    for now_s, target in ((0.0, 2), (15.0, 3), (16.0, 2)):
        crew.scale_to(target, now_s)
    crew.work_until(21.0)
    assert crew.ready == 2
    assert crew.replica_s(21.0) == (21.0 + 21.0 + 1.0, 0.0)


def test_of_several_replicas_that_with_the_least_to_do_is_drained() -> None:
    fleet, engine = standing(requests((0.0, 100, 400), (0.1, 100, 400), (0.2, 100, 400)), 0)
    crew = Crew(fleet, engine, 20.0, 4)
    crew.work_until(1.0)
    busy = fleet.decodes > 0
    assert sorted(fleet.decodes) == [0, 1, 1, 1]
    crew.scale_to(3, 1.0)
    assert (fleet.status[busy] == READY).all() and fleet.status[~busy].tolist() == [DRAINING]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("price=0.5", "base=N or quantile=SHARE is needed, and not both"),
        ("base=1,quantile=0.5", "base=N or quantile=SHARE is needed, and not both"),
        ("base=-1", "overflow.base: -1 is not allowed"),
        ("base=1.5", "overflow.base: 1.5 is not allowed"),
        ("base=many", "overflow.base: 'many' is not allowed"),
        ("base=1,price=0", "overflow.price: 0 is not allowed"),
        ("base=1,notice_s=-1", "overflow.notice_s: -1 is not allowed"),
        ("base=1,together=1.5", "overflow.together: 1.5 is not allowed"),
        ("base=1,prise=0.5", "overflow: unknown key 'prise'"),
    ],
)
def test_an_overflow_that_is_written_wrong(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_overflow(text)


def test_a_quantile_is_the_replicas_that_carry_so_much_of_the_day() -> None:
    day = [2.0, 4.2, 9.0, 3.0]
    assert parse_overflow("quantile=1").sized(day).base == 9
    assert parse_overflow("quantile=0.5").sized(day).base == 4  # 3.6
    assert Overflow(base=3).sized(day) == Overflow(base=3)


def test_a_share_of_the_second_group_is_told_to_go_at_once() -> None:
    fleet, engine = standing(requests(*[(0.0, 10, 2)] * 40), 0)
    overflow = Overflow(base=1, losses_per_h=20.0, notice_s=5.0, together=1.0)
    crew = Crew(fleet, engine, 20.0, 4, overflow, seed=1)
    crew.work_until(crew._loss_s - 0.1)
    assert crew.ready == 4 and crew.taken == 0
    crew.work_until(crew._loss_s)
    assert crew.ready == 1 and crew.taken == 3


def test_more_that_leave_than_a_fleet_has_room_for_is_one_clear_line() -> None:
    fleet, engine = standing(requests((0.0, 1000, 400)), 0, slots=[1])
    crew = Crew(fleet, engine, 1.0, len(fleet.status) - 1, Overflow(base=0, losses_per_h=1e-9))
    crew.scale_to(len(fleet.status) + 1, 0.0)
    with pytest.raises(ConfigError, match="only with fewer losses_per_h"):
        crew.work_until(2.0)
