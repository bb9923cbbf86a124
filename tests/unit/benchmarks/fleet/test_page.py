import math

from benchmarks.fleet.contest import best_rival
from benchmarks.fleet.one_for_all import OneForAll
from benchmarks.fleet.page import elastic_page
from benchmarks.report.rows import Row
from simulator.fleet.course import Result
from tests.unit.simulator.fleet.fleets import GROUND


def result(policy: str, attainment: float, hours: float, back_s: float | None = None) -> Result:
    return Result("step", policy, f"{policy}:x=1", attainment, hours, 2.0, back_s)


FOUND = {
    "oracle": result("oracle", 0.99, 100.0, 0.0),
    "brimful": result("brimful", 0.992, 108.0, 140.0),
    "brimful tuned": result("brimful", 0.99, 90.0, 130.0),
    "ray tuned": result("ray", 0.995, 150.0, 200.0),
    "wva tuned": result("wva", 0.97, 80.0, math.inf),
}


def test_the_best_rival_keeps_the_sla_and_is_not_ours() -> None:
    rival = best_rival(FOUND)
    assert rival is not None and rival.policy == "ray"
    assert best_rival({k: v for k, v in FOUND.items() if k != "ray tuned"}) is None


def test_the_rows_compare_with_the_oracle_and_the_best_rival() -> None:
    rows = {row.id: row for row in elastic_page({"step": FOUND}, GROUND).rows}
    assert rows["elastic_step_over_oracle"].estimate.value == 1.08
    assert rows["elastic_step_over_oracle"].met is True
    assert rows["elastic_step_over_rival"].estimate.value == 108 / 150
    assert rows["elastic_step_back"].estimate.value == 140
    assert rows["elastic_step_inside"].met is True


def test_a_rival_that_takes_fewer_hours_than_the_oracle_is_the_mark() -> None:
    found = {**FOUND, "ray tuned": result("ray", 0.995, 90.0)}
    rows = {row.id: row for row in elastic_page({"step": found}, GROUND).rows}
    assert rows["elastic_step_over_oracle"].estimate.value == 1.2
    assert "ray, tuned for the day, which takes fewer" in rows["elastic_step_over_oracle"].what
    found["ray tuned"] = result("ray", 0.995, 99.0)
    close = {"step": {**found, "brimful": result("brimful", 0.992, 105.0)}}
    rows = {row.id: row for row in elastic_page(close, GROUND).rows}
    assert rows["elastic_step_over_oracle"].met is True
    # Where the rival may be better than what was tried of it, it is met by nothing.
    rows = {row.id: row for row in elastic_page(close, GROUND, cut={"step": {"ray": 2}}).rows}
    assert rows["elastic_step_over_oracle"].met is None


def test_who_cannot_keep_the_sla_is_named_and_its_hours_do_not_count() -> None:
    page = elastic_page({"step": FOUND}, GROUND).markdown("make bench-elastic")
    assert "Under 99% at every setting that was tried: wva tuned." in page
    assert "(80.0)" in page and "never" in page


def test_no_aim_beside_a_rival_is_met_while_a_better_one_may_be_found() -> None:
    def rows(**cut: int) -> dict[str, Row]:
        return {
            row.id: row for row in elastic_page({"step": FOUND}, GROUND, cut={"step": cut}).rows
        }

    whole, part = rows(brimful=3), rows(ray=7)
    assert whole["elastic_step_over_rival"].met is True
    assert part["elastic_step_over_rival"].met is None
    assert "not all searched, <= 0.85 wanted" in part["elastic_step_over_rival"].what
    assert part["elastic_step_over_oracle"].met is True  # the oracle was searched
    page = elastic_page({"step": FOUND}, GROUND, cut={"step": {"ray": 7, "wva": 0}})
    text = page.markdown("make bench-elastic")
    assert "Not all searched; settings tried where a search was cut short: 7 of ray." in text
    assert "Not tried: wva." in text


def test_an_aim_that_is_missed_stays_missed_whoever_else_is_found() -> None:
    dear = {**FOUND, "brimful": result("brimful", 0.99, 140.0)}
    rows = {
        row.id: row for row in elastic_page({"step": dear}, GROUND, cut={"step": {"ray": 1}}).rows
    }
    assert rows["elastic_step_over_rival"].met is False


def test_a_rival_with_one_setting_is_shown_beside_itself_tuned_for_each_day() -> None:
    one = OneForAll("ray:x=2", {"step": result("ray", 0.991, 160.0)}, among=("wva", "ray"))
    shared = {"all days": one}
    page = elastic_page({"step": FOUND}, GROUND, shared=shared)
    row = next(row for row in page.rows if row.id == "elastic_all_days_over_one_setting")
    assert row.estimate.value == 108 / 160 and row.met is None
    text = page.markdown("make bench-elastic")
    assert "both keep the SLA, of wva, ray: `ray:x=2`" in text
    assert "| step | 108.0 | 160.0 | 150.0 | 99.10% |" in text


def test_hours_and_turns_of_ours_and_of_the_one_setting_are_not_mixed_up() -> None:
    one = Result("step", "ray", "ray:x=2", 0.991, 160.0, 7.0, None)
    found = {**FOUND, "brimful": Result("step", "brimful", "brimful", 0.992, 108.0, 3.0, 140.0)}
    page = elastic_page(
        {"step": found}, GROUND, shared={"all days": OneForAll("ray:x=2", {"step": one})}
    )
    assert "| step | 108.0 | 160.0 | 150.0 | 99.10% | 3 | 7 |" in page.markdown("x")


def test_where_no_one_setting_is_known_the_page_says_so() -> None:
    page = elastic_page({"step": FOUND}, GROUND, shared={"real days": None})
    assert "A rival with one setting for real days: none is known" in page.markdown("x")
    assert all("one_setting" not in row.id for row in page.rows)


def test_a_rival_that_was_not_searched_whole_as_it_is_dear_is_named() -> None:
    dear = {**FOUND, "queue-depth tuned": result("queue-depth", 0.99, 196.0)}
    assert "as too dear: queue-depth." in elastic_page({"step": dear}, GROUND).markdown("x")
    assert "too dear" not in elastic_page({"step": FOUND}, GROUND).markdown("x")
