"""What is swept of the named rivals: every setting is one that the replay reads."""

import pytest

from benchmarks.baselines.options import RIVALS
from benchmarks.contests.sweeps import (
    LONGEST,
    LONGEST_TOKENS,
    OFFLINE,
    SWEEPS,
    Point,
    around,
    first_points,
    offline_points,
    published,
)
from benchmarks.contests.tuning import Setting
from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from simulator.virtual.plan import engine_of, parse_policy

FIG3 = load_profile("paper-fig3")


def test_every_rival_is_swept() -> None:
    advised = {"fill_batch", "prefill_first"}  # of articles: shown as they are advised
    assert set(SWEEPS) == set(RIVALS) - advised - {"hygen"}  # which has a bench of its own
    assert set(OFFLINE) <= {*RIVALS, "static"}


@pytest.mark.parametrize("rival", sorted(SWEEPS))
def test_all_settings_of_a_search_are_allowed_and_none_is_tried_twice(rival: str) -> None:
    first = first_points(rival, Setting(40, 155), FIG3)
    assert published(rival) in first
    near = [other for point in first for other in around(point, 0.12)]
    for point in (*first, *near):
        plan = parse_policy(point.spec, Sla(itl_ms=50), engine_of(FIG3))
        assert plan.kind == "rival"
    assert all(point not in around(point, 0.12) for point in first)


@pytest.mark.parametrize("rival", sorted(OFFLINE))
def test_the_offline_grids_are_allowed(rival: str) -> None:
    points = offline_points(rival)
    assert len(set(points)) == len(points) > 1
    for point in points:
        parse_policy(point.spec, Sla(), engine_of(FIG3))


def test_a_cap_is_no_more_than_the_chunk() -> None:
    point = Point("sarathi").but({"max_num_seqs": 40, "max_num_batched_tokens": 30})
    assert point.spec == "sarathi:max_num_seqs=30,max_num_batched_tokens=30"


@pytest.mark.parametrize("now", [None, 0, 32])
def test_what_one_prompt_may_take_is_tried_at_every_other_choice(now: int | None) -> None:
    point = Point("sarathi").but({} if now is None else {LONGEST: now})
    tried = [dict(other.values).get(LONGEST, now) for other in around(point, 0.12)]
    others = [one for one in LONGEST_TOKENS if one != (now or 0)]
    assert [one for one in tried if one != now] == others
