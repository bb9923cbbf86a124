"""Several engines behind the production router, in virtual time."""

from collections import Counter
from functools import cache

import numpy as np
import pytest

from benchmarks.contests import scenarios
from benchmarks.contests.by_class import spread_over
from benchmarks.contests.catalog import CLASSES as SCENARIOS
from benchmarks.contests.routing import ByClass, ByRoom
from benchmarks.contests.scenarios import CLASSES, EVEN, GATHERED, NO_LINK, SEPARATE
from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.replay.fleet import STATS_DELAY_S, Fleet, FleetTrace
from simulator.replay.steering import Steering
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.traffic import draw_traffic

GROUND = Ground(load_profile("paper-fig3"), classes=CLASSES)
PLAN = parse_policy("adaptive", Sla(), engine_of(GROUND.profile))


def requests(per_s: float, count: int):
    traffic = draw_traffic(load_workload("exponential:257,62"), count, None, 3).at(per_s)
    return spread_over(traffic, CLASSES, 3)


def served(asked, steering: Steering) -> FleetTrace:
    engines = len(steering.roles)
    return Fleet(asked, PLAN, GROUND, engines, NO_LINK, steering).run()


@pytest.mark.parametrize("per_s", [0.5, 9.0])
def test_a_fleet_of_one_engine_is_that_engine(per_s: float) -> None:
    asked = requests(per_s, 150)
    fleet = served(asked, ByRoom(1, 0, {})).trace
    alone = replay(asked, PLAN, GROUND, drain=False)
    assert fleet.steps[: len(alone.steps)] == alone.steps
    assert [o.first_token_s for o in fleet.outcomes] == [o.first_token_s for o in alone.outcomes]


@cache
def at_six(routed: str) -> FleetTrace:
    """Three engines that share 18 requests/s of three classes."""
    return run_at(f"{routed}adaptive", 6.0)


def run_at(spec: str, per_s: float) -> FleetTrace:
    one = SCENARIOS[0]
    course, ground = one.course(5, small=True)
    return one.run_at(spec, course, ground, 5, per_s)


@pytest.mark.parametrize("routed", [GATHERED, EVEN, SEPARATE])
def test_every_request_is_served_by_one_engine_and_none_is_lost(routed: str) -> None:
    found = at_six(routed)
    whole = found.trace
    arrivals = [o.request.arrival_s for o in whole.outcomes]
    assert len(arrivals) == len(set(arrivals)) == len(found.ways)
    assert max(arrivals) == whole.end_s
    # Each gap is of the request that it is counted for.
    gaps = np.bincount(whole.gaps.request, minlength=len(whole.outcomes))
    assert [max(o.tokens - 1, 0) for o in whole.outcomes] == gaps.tolist()


def test_the_strictest_gather_on_the_first_engine_and_the_others_on_the_last() -> None:
    def shares(routed: str) -> list[Counter[str]]:
        found, counts = at_six(routed), [Counter[str]() for _ in range(3)]
        for outcome, way in zip(found.trace.outcomes, found.ways, strict=True):
            counts[way.decode][outcome.request.service or ""] += 1
        return counts

    gathered, even, separate = map(shares, (GATHERED, EVEN, SEPARATE))
    assert gathered[0]["gold"] > 0.8 * gathered[0].total()
    assert gathered[2]["gold"] < 0.1 * gathered[2].total()
    assert all(0.25 < one["gold"] / one.total() < 0.42 for one in even)
    assert [set(one) for one in separate] == [{name} for name in CLASSES.by_name]


def test_the_router_hears_of_an_engine_that_has_nothing_to_do() -> None:
    """Else its room would be out of date, and count for less."""
    heard = Counter[int]()

    class Listening(ByClass):
        def hear(self, engine, report, room, now_s):
            if now_s > young_s:
                heard[engine] += room is not None

    young_s = 5.0  # an engine's first steps are reported more often
    asked = [r for r in requests(9.0, 300) if r.service == "gold"]
    served(asked, Listening(list(CLASSES.by_name)))
    assert min(heard[k] for k in range(3)) > 0.9 * max(heard.values()) > 10


def test_the_router_knows_what_it_sent_and_figures_when_they_are_a_quarter_old() -> None:
    ages: list[float] = []
    dates: list[tuple[int, float]] = []
    open_here: list[int] = []

    class Watched(ByRoom):
        def hear(self, engine, report, room, now_s):
            assert room is not None
            ages.append(now_s - room.taken_unix_s)
            dates.append((engine, room.taken_unix_s))
            super().hear(engine, report, room, now_s)

        def pick(self, request, now_s):
            way = super().pick(request, now_s)
            open_here.append(self._chooser._known[way.decode].requests)
            return way

    served(requests(9.0, 150), Watched(3, 1, {}))
    assert ages == pytest.approx([STATS_DELAY_S] * len(ages), abs=0.002)  # of whole ms
    assert len(set(dates)) == len(dates)
    assert min(open_here) >= 1


def test_only_ours_is_told_priorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """QoServe has an order of its own."""
    told: list[set[int]] = []

    class Told:
        def __init__(self, requests, *rest):
            told.append({r.priority for r in requests})

        def run(self):
            return None

    monkeypatch.setattr(scenarios, "Fleet", Told)
    for spec in ("adaptive", "qoserve"):
        run_at(f"{EVEN}{spec}", 3.0)
    assert told == [{0, 1, 2}, {0}]
