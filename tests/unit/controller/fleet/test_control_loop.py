"""The slow loop: pooling, old news, members that are gone, soft state. The clock is a number."""

from typing import Any

import pytest

from controller.errors import ConfigError, ReportError
from controller.fleet.loop import ControlLoop
from controller.models.step_time import StepModel, StepStats
from controller.models.survival import BINS
from controller.records import RecentSteps, ReplicaReport
from tests.builders import batching, engine, linear_steps, moments_of, recent, report, stats_of

EXACT = batching(paper={"memory": "exact"})
SLA = batching(paper={"memory": "exact"}, sla={"itl_ms": 50})


def pooled(loop: ControlLoop, now_s: float = 0.0, group: str = "g") -> Any:
    return loop.snapshot(now_s)["groups"][group]["pool"]


def members(loop: ControlLoop, now_s: float = 0.0, group: str = "g") -> dict[str, Any]:
    return loop.snapshot(now_s)["groups"][group]["replicas"]


def test_limits_carry_the_lease_and_the_decision() -> None:
    config = batching(paper={"memory": "exact"}, lease_s=7.0)
    answer = ControlLoop().exchange(report(lengths=moments_of([(100, 100)])), config, 0)
    assert answer.lease_s == 7.0
    assert (answer.max_running, answer.reason, answer.token_budget) == (100, "memory", None)
    assert answer.enforce
    assert answer.model is None
    assert answer.capacity_per_s is None


def test_enforce_false_goes_along_with_the_limits() -> None:
    assert not ControlLoop().exchange(report(), batching(enforce=False), 0).enforce


def test_two_replicas_of_a_group_decide_from_the_lengths_of_both() -> None:
    loop = ControlLoop()
    loop.exchange(report(replica_id="a", lengths=moments_of([(100, 100)])), EXACT, 0.0)
    answer = loop.exchange(report(replica_id="b", lengths=moments_of([(300, 300)])), EXACT, 0.1)
    assert answer.replicas == 2
    assert pooled(loop).lengths == moments_of([(100, 100), (300, 300)])
    assert answer.max_running == 45  # m = 400, s^2 = 20,000


def test_two_replicas_know_the_model_that_neither_knows_alone() -> None:
    loop = ControlLoop()
    small = stats_of([s for s in linear_steps(400) if s.decodes == 10] * 20)
    large = stats_of([s for s in linear_steps(400) if s.decodes == 90] * 20)
    assert loop.exchange(report(replica_id="a", steps=small), SLA, 0.0).model is None
    model = loop.exchange(report(replica_id="b", steps=large), SLA, 0.1).model
    assert model is not None
    assert model.predict_s(50, 0, 0, 0) == pytest.approx(0.03, rel=0.02)


def test_a_newcomer_gets_the_tail_that_most_of_its_group_measured() -> None:
    loop, steps = ControlLoop(), stats_of(linear_steps())
    for number, tail_frac in enumerate((0.1, 0.2, 0.4)):
        measured = StepModel(0.02, 2e-4, 0.0, 0.0, 0.0, 0.0, tail_frac)
        loop.exchange(report(replica_id=f"r{number}", steps=steps, model=measured), SLA, number)
    new = StepModel(0.02, 2e-4, 0.0, 0.0, 0.0, 0.0)
    answer = loop.exchange(report(replica_id="new", steps=steps, model=new), SLA, 3)
    assert answer.model is not None
    assert answer.model.tail_frac == 0.2
    other = ControlLoop().exchange(report(steps=steps, model=new), SLA, 0).model
    assert other is not None
    assert other.tail_frac == 0


def test_groups_know_nothing_of_each_other() -> None:
    loop = ControlLoop()
    loop.exchange(report(group="g", lengths=moments_of([(100, 100)])), EXACT, 0)
    answer = loop.exchange(report(group="h"), EXACT, 0)
    assert answer.replicas == 1
    assert pooled(loop, group="h").lengths.n == 0


def test_a_known_model_gives_the_capacity_at_the_decided_cap() -> None:
    known = report(lengths=moments_of([(100, 100)]), steps=stats_of(linear_steps()))
    answer = ControlLoop().exchange(known, EXACT, 0)
    # 100 running: 100 steps of (0.02 / 100 + 0.0002) s a request.
    assert answer.capacity_per_s == pytest.approx(25.0, rel=0.01)


def test_a_cap_that_is_not_applied_does_not_set_the_capacity() -> None:
    known = report(lengths=moments_of([(100, 100)]), steps=stats_of(linear_steps()))
    capped = {"paper": {"memory": "exact"}, "max_running": {"max": 10}}
    answers = [
        ControlLoop().exchange(known, batching(enforce=enforce, **capped), 0)
        for enforce in (True, False)
    ]
    assert [answer.max_running for answer in answers] == [10, 10]
    # 10 running: 100 steps of (0.02 / 10 + 0.0002) s a request; uncapped, memory holds 133 of 150.
    assert answers[0].capacity_per_s == pytest.approx(1 / 0.22, rel=0.01)
    assert answers[1].capacity_per_s == pytest.approx(1 / (2 / 133 + 0.02), rel=0.01)


def test_without_a_cap_no_more_run_than_the_engines_size() -> None:
    known = report(lengths=moments_of([(1, 10)]), steps=stats_of(linear_steps()))
    answer = ControlLoop().exchange(known, batching(enforce=False), 0)
    assert answer.capacity_per_s == pytest.approx(1 / (10 * (0.02 / 256 + 0.0002)), rel=0.01)


MODEL = StepModel(c0=0.03, c1=0.0, c2=0.0, c3=0.0, c4=0.0, sigma_s=0.0)


@pytest.mark.parametrize(
    ("known", "itl_ms", "out"),
    [
        ({"steps": stats_of(linear_steps())}, 22.0, True),  # one decode takes 20.2 ms
        ({"steps": stats_of(linear_steps())}, 22.5, False),
        ({"model": MODEL}, 32.9, True),
        ({"model": MODEL}, 33.1, False),
        ({"model": MODEL, "steps": stats_of(linear_steps())}, 25.0, True),  # its own alone
        ({"model": MODEL}, None, False),
        ({}, 1.0, False),
    ],
)
def test_an_sla_is_out_of_reach_by_the_groups_model_or_by_the_replicas_own(
    known: dict[str, Any], itl_ms: float | None, out: bool
) -> None:
    answer = ControlLoop().exchange(report(**known), batching(sla={"itl_ms": itl_ms}), 0)
    assert answer.sla_out_of_reach is out


def test_a_report_sent_twice_gets_the_same_answer_and_moves_nothing() -> None:
    loop = ControlLoop()
    first = report(seq=1, recent=recent(0.06, 120))
    answer = loop.exchange(first, SLA, 0.0)
    assert loop.exchange(first, SLA, 0.5) is answer
    second = loop.exchange(report(seq=2, recent=recent(0.06, 60)), SLA, 1.0)
    assert second.max_running == 30  # one window after the first, not two


def test_a_report_that_was_overtaken_is_old_news() -> None:
    loop = ControlLoop()
    answer = loop.exchange(report(seq=5, running=50), SLA, 0.0)
    assert loop.exchange(report(seq=4, running=40), SLA, 0.5) is answer
    assert members(loop)["r1"]["report"].running == 50


def test_a_lower_number_after_a_lease_is_an_engine_that_started_anew() -> None:
    loop = ControlLoop()
    loop.exchange(report(seq=500, running=50, recent=recent(0.06, 120)), SLA, 0.0)
    answer = loop.exchange(report(seq=1, running=3), SLA, SLA.lease_s)
    assert members(loop)["r1"]["report"].running == 3
    assert answer.max_running == 256


def test_a_replica_without_a_report_for_three_leases_is_forgotten() -> None:
    loop = ControlLoop()
    loop.exchange(report(replica_id="a", lengths=moments_of([(100, 100)])), EXACT, 0.0)
    loop.exchange(report(replica_id="b", seq=1), EXACT, 15.0)
    assert set(members(loop)) == {"a", "b"}  # three leases: late, not gone
    answer = loop.exchange(report(replica_id="b", seq=2), EXACT, 15.3)
    assert set(members(loop)) == {"b"}
    assert answer.replicas == 1
    assert pooled(loop).lengths.n == 0


def test_a_group_without_replicas_is_forgotten_by_whoever_is_left() -> None:
    loop = ControlLoop()
    loop.exchange(report(group="taken down"), EXACT, 0.0)
    loop.exchange(report(group="g", seq=1), EXACT, 10.0)
    assert set(loop.snapshot(10.0)["groups"]) == {"taken down", "g"}
    loop.exchange(report(group="g", seq=2), EXACT, 20.0)
    assert set(loop.snapshot(20.0)["groups"]) == {"g"}


def test_a_forgotten_replicas_search_starts_anew() -> None:
    loop = ControlLoop()
    loop.exchange(report(replica_id="a", seq=8, recent=recent(0.06, 120)), SLA, 0.0)
    loop.exchange(report(replica_id="b", seq=1), SLA, 20.0)
    assert loop.exchange(report(replica_id="a", seq=9), SLA, 21.0).max_running == 256


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"running": -1}, r"report\.running: -1 is not allowed: a finite number from 0"),
        ({"arrival_rate_per_s": float("nan")}, r"report\.arrival_rate_per_s: nan"),
        ({"recent": RecentSteps(1, float("inf"), 1.0, 1.0)}, r"report\.recent\.itl_s: inf"),
        ({"steps": StepStats(b=(0.0, -1.0, 0.0, 0.0, 0.0))}, r"report\.steps\.b\[1\]: -1\.0"),
        ({"engine": engine(kv_tokens=-16)}, r"report\.engine\.kv_tokens: -16"),
    ],
)
def test_a_report_that_cannot_be_true_is_refused_and_changes_nothing(
    broken: dict[str, Any], message: str
) -> None:
    loop = ControlLoop()
    loop.exchange(report(replica_id="a", lengths=moments_of([(100, 100)])), EXACT, 0.0)
    before = loop.snapshot(1.0)
    for replica_id in ("a", "new"):
        with pytest.raises(ReportError, match=message):
            loop.exchange(report(replica_id=replica_id, seq=2, **broken), EXACT, 1.0)
    assert loop.snapshot(1.0) == before


def test_bounds_that_do_not_fit_the_engine_are_refused_and_change_nothing() -> None:
    loop = ControlLoop()
    with pytest.raises(ConfigError, match="max: 512 is above max_num_seqs=256"):
        loop.exchange(report(), batching(max_running={"max": 512}), 0)
    assert loop.snapshot(0)["groups"] == {}


def test_the_pool_is_at_most_a_quarter_second_old() -> None:
    loop = ControlLoop()
    loop.exchange(report(seq=1), EXACT, 0.0)
    later = moments_of([(100, 100)])
    loop.exchange(report(seq=2, lengths=later), EXACT, 0.2)
    assert pooled(loop).lengths.n == 0
    loop.exchange(report(seq=3, lengths=later), EXACT, 0.25)
    assert pooled(loop).lengths == later


def test_a_newcomer_gets_the_lengths_of_those_that_are_here_now() -> None:
    def said(bin_: int, n: int) -> tuple[int, ...]:
        return tuple(n if k == bin_ else 0 for k in range(BINS))

    loop, config = ControlLoop(), batching(policy="adaptive", lease_s=2.0)
    for seq, number in enumerate((300, 400), start=1):  # the later report takes the first's place
        loop.exchange(report(replica_id="a", seq=seq, outputs=said(5, number)), config, 0.0)
    loop.exchange(report(replica_id="b", seq=1, outputs=said(9, 450)), config, 0.1)
    answer = loop.exchange(report(replica_id="new", outputs=said(9, 0)), config, 0.2)
    assert answer.outputs is not None
    assert (answer.outputs[5], answer.outputs[9], sum(answer.outputs)) == (400, 450, 850)
    # No report of "a" for three leases; "b" alone knows less than would help.
    loop.exchange(report(replica_id="b", seq=2, outputs=said(9, 450)), config, 6.0)
    last = loop.exchange(report(replica_id="new", seq=2, outputs=said(9, 0)), config, 6.5)
    assert last.outputs is None


def test_of_many_that_join_at_once_the_pool_is_made_anew_every_quarter_second() -> None:
    loop = ControlLoop()
    for number in range(40):
        loop.exchange(report(replica_id=str(number)), EXACT, 0.0)
    assert 16 <= pooled(loop).replicas < 40
    loop.exchange(report(replica_id="0", seq=2), EXACT, 0.3)
    assert pooled(loop).replicas == 40


def test_a_new_controller_has_the_same_pool_after_one_report_of_each_replica() -> None:
    def reports(seq: int) -> list[ReplicaReport]:
        known = {"steps": stats_of(linear_steps()), "lengths": moments_of([(80, 120)] * 5)}
        return [report(replica_id=r, seq=seq, **known) for r in ("a", "b", "c")]

    old = ControlLoop()
    for seq in range(1, 20):
        for r in reports(seq):
            old.exchange(r, EXACT, float(seq))
    new = ControlLoop()
    answers = [new.exchange(r, EXACT, 100.0) for r in reports(20)]
    assert pooled(new) == pooled(old)
    assert answers[-1] == members(old)["c"]["limits"]


def test_the_snapshot_says_how_old_each_report_is() -> None:
    loop = ControlLoop()
    loop.exchange(report(), EXACT, 10.0)
    view = loop.snapshot(12.5)
    assert view["groups"]["g"]["replicas"]["r1"]["age_s"] == 2.5
