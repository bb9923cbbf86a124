"""Replicas of the fluid fleet that compute prompts for others."""

from dataclasses import replace

import numpy as np
import pytest

from controller.roles import Fleet as Engines
from controller.roles import Transfer, best_of, splits
from simulator.fleet import fluid
from simulator.fleet.crew import Crew
from simulator.fleet.published import moments
from simulator.fleet.replica import is_empty
from simulator.fleet.role_split import RoleSplit
from simulator.fleet.state import (
    ABSENT,
    DRAINING,
    MIXED,
    PREFILL,
    READY,
    Engine,
    Fleet,
    make_fleet,
    occupy,
)
from simulator.fleet.traffic import Requests
from tests.unit.simulator.fleet.fleets import GROUND, SLA, requests, steadily

LINK = Transfer(100_000, 1e9, 0.003)  # 0.1 ms a token
FULL = 55  # of 60 decodes that a step of 50 ms holds
APART = replace(GROUND, transfer=LINK)


def apart(asked: Requests, prefill: int, mixed: int) -> tuple[Fleet, Engine]:
    engine = APART.engine(asked)
    fleet = make_fleet(asked, prefill + mixed, engine, 0)
    for slot in range(prefill + mixed):
        occupy(fleet, slot, 0.0)
        fleet.role[slot] = PREFILL if slot < prefill else MIXED
    return fleet, engine


def busy_first(*each: tuple[float, int, int]) -> Requests:
    """After long answers, beside which a prompt is computed slowly."""
    return requests(*[(0.0, 10, 1400)] * FULL, *each)


def test_a_prompt_goes_through_where_decodes_fill_the_steps() -> None:
    asked = busy_first((5.0, 800, 20))
    fleet, engine = apart(asked, 1, 1)
    fluid.run_until(fleet, engine, 30.0)
    assert fleet.decode_at[FULL] == 1
    # A step of 20 ms and 0.1 ms a token, 80 ms of the card, 3 ms; then steps of at most 50.
    there_s = 5.0 + 0.02 + 0.08 + 0.08 + 0.003
    assert there_s < fleet.there_s[FULL] < there_s + 0.03
    assert fleet.there_s[FULL] + 0.05 < fleet.first_s[FULL] < fleet.there_s[FULL] + 0.08
    assert fleet.end_s[FULL] == pytest.approx(fleet.first_s[FULL] + 19 * 0.05, rel=0.05)
    assert fleet.promised.tolist() == [0, 0] and fleet.promised_tokens.tolist() == [0.0, 0.0]
    assert fleet.prompts_for_others.tolist() == [0, 0]


def test_a_prompt_goes_direct_where_nobody_decodes() -> None:
    fleet, engine = apart(requests((1.0, 100, 20)), 1, 1)
    fluid.run_until(fleet, engine, 10.0)
    assert fleet.decode_at[0] == -1 and fleet.first_s[0] < 1.06


def test_everyone_is_served_once_while_roles_change() -> None:
    asked = steadily(25.0, 60.0, 400, 40)
    fleet, engine = apart(asked, 1, 3)
    for until_s in range(1, 121):
        fluid.run_until(fleet, engine, float(until_s))
        fleet.role[until_s % 4] = MIXED if fleet.role[until_s % 4] == PREFILL else PREFILL
        if (fleet.role == PREFILL).all():
            fleet.role[0] = MIXED
    assert sorted(fleet.done.tolist()) == list(range(len(asked.arrival_s)))
    assert not np.isnan(fleet.end_s).any() and (fleet.end_s >= fleet.first_s).all()
    assert (fleet.first_s > asked.arrival_s).all() and (fleet.decode_at >= 0).any()
    assert all(is_empty(fleet, slot) for slot in range(4))
    assert not fleet.held.any() and not fleet.promised.any() and not fleet.prompts_for_others.any()


def test_who_decodes_keeps_the_itl_until_the_last_has_ended() -> None:
    asked = requests(*[(0.0, 10, 400)] * 20)
    fleet, engine = apart(asked, 0, 1)
    fluid.run_until(fleet, engine, 1.0)
    fleet.role[0] = PREFILL
    fluid.run_until(fleet, engine, 60.0)
    gaps_s = (fleet.end_s - fleet.first_s) / (asked.output - 1)
    assert (gaps_s <= 0.05 + 1e-9).all()


def test_a_drain_waits_for_the_kv_that_is_on_its_way() -> None:
    asked = busy_first((5.0, 800, 20))
    fleet, engine = apart(asked, 1, 1)
    fluid.run_until(fleet, engine, 5.05)
    assert fleet.promised[1] == 1
    fleet.status[:] = DRAINING
    fluid.run_until(fleet, engine, 300.0)
    assert not np.isnan(fleet.end_s).any() and (fleet.status == ABSENT).all()


def test_the_number_in_each_role_and_the_capacity_are_the_controllers() -> None:
    asked = steadily(40.0, 100.0, 800, 40)
    fleet, engine = apart(asked, 0, 4)
    roles = RoleSplit(fleet, engine, SLA, APART.model(asked, engine), LINK)
    roles.look(0.0)
    assert not (fleet.role == PREFILL).any()  # nothing ended: nothing is known
    for until_s in range(1, 41):
        fluid.run_until(fleet, engine, float(until_s))
        roles.look(float(until_s))
    lengths = moments(asked.input, asked.output)
    engines = Engines(4, 64, 1000, 100_000)
    best = best_of(splits(APART.model(asked, engine), lengths, engines, LINK, SLA))
    assert best.prefill > 0 and (fleet.role == PREFILL).sum() == best.prefill
    assert roles.carried_per_s(lengths, 4) == pytest.approx(best.per_s)


def test_of_the_role_that_has_one_more_than_wanted_one_goes_first() -> None:
    asked = steadily(1.0, 10.0, 100, 10)
    fleet, engine = apart(asked, 0, 4)
    for slot in range(4):
        fleet.status[slot] = ABSENT
    order = [PREFILL, MIXED]
    crew = Crew(fleet, engine, 10.0, 3, spare=lambda: order)
    fleet.role[1] = PREFILL
    crew.scale_to(2, 1.0)
    assert fleet.status.tolist() == [READY, DRAINING, READY, ABSENT]
