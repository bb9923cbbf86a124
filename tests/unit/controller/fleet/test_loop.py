"""The slow loop on a clock that is a number: pooling, old and bad news, switches, soft state."""

from dataclasses import replace
from typing import Any

import pytest

from controller.config import BatchingConfig
from controller.errors import ConfigError, ReportError
from controller.fleet.loop import ControlLoop, unlike
from controller.models.step_time import StepModel, StepStats, fit
from controller.models.survival import BINS, ENDS_KEPT
from controller.records import BatchLimits, RecentSteps, ReplicaReport
from controller.switch import Switch
from tests.builders import batching, engine, linear_steps, moments_of, recent, report, stats_of
from tests.plant import Plant

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


def test_two_replicas_of_a_group_decide_from_the_lengths_of_both() -> None:
    loop = ControlLoop()
    loop.exchange(report(replica_id="a", lengths=moments_of([(100, 100)])), EXACT, 0.0)
    answer = loop.exchange(report(replica_id="b", lengths=moments_of([(300, 300)])), EXACT, 0.1)
    assert answer.replicas == 2
    assert pooled(loop).lengths == moments_of([(100, 100), (300, 300)])
    assert answer.max_running == 45  # m = 400, s^2 = 20,000


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


STEPS = stats_of(linear_steps())  # 20 ms, and 0.2 ms a decode
HUNDRED = moments_of([(100, 100)])
CAPPED = {"paper": {"memory": "exact"}, "max_running": {"max": 10}}


@pytest.mark.parametrize(
    ("fields", "block", "cap", "per_s"),
    [
        # 100 run: 100 steps of (0.02 / 100 + 0.0002) s a request.
        ({"lengths": HUNDRED}, {"paper": {"memory": "exact"}}, 100, 25.0),
        ({"lengths": HUNDRED}, CAPPED, 10, 1 / 0.22),
        # A cap that is not applied does not set it: memory holds 133 of 150 tokens.
        ({"lengths": HUNDRED}, {**CAPPED, "enforce": False}, 10, 1 / (2 / 133 + 0.02)),
        # No more run than the engine's size, and one where no request fits.
        ({"lengths": moments_of([(1, 10)])}, {"enforce": False}, 256, 1 / (0.2 / 256 + 0.002)),
        (
            {"lengths": moments_of([(300, 100)]), "engine": engine(kv_tokens=200)},
            {"enforce": False},
            256,
            1 / (100 * 0.0202),
        ),
        (  # a model without KV
            {"lengths": moments_of([(300, 100)]), "engine": engine(kv_tokens=0)},
            {"enforce": False},
            256,
            1 / (2 / 256 + 0.02),
        ),
        ({}, {"enforce": False}, 256, None),  # nothing has finished
    ],
)
def test_the_capacity_is_that_of_the_cap_that_holds(fields, block, cap, per_s):
    answer = ControlLoop().exchange(report(steps=STEPS, **fields), batching(**block), 0)
    assert (answer.max_running, answer.enforce) == (cap, block.get("enforce", True))
    assert answer.capacity_per_s == pytest.approx(per_s, rel=0.01)


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
def test_an_sla_is_out_of_reach_by_the_groups_model_or_by_the_replicas_own(known, itl_ms, out):
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
def test_a_report_that_cannot_be_true_is_refused_and_changes_nothing(broken, message):
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


def test_two_configurations_in_one_group_keep_a_policy_each() -> None:
    # As one reaches replica after replica; each search goes on as if it were alone.
    slow = batching(paper={"memory": "exact"}, sla={"itl_ms": 40})
    together, alone = ControlLoop(), {"a": ControlLoop(), "b": ControlLoop()}
    for seq in range(1, 9):
        for replica_id, config in (("a", SLA), ("b", slow)):
            said = report(replica_id=replica_id, seq=seq, recent=recent(0.045, 40))
            answer = together.exchange(said, config, seq / 2)
            assert answer.max_running == (
                alone[replica_id].exchange(said, config, seq / 2).max_running
            )
    assert members(together)["a"]["limits"].max_running > 100  # 45 ms of 50: up
    assert members(together)["b"]["limits"].max_running < 50  # 45 ms of 40: down


def test_two_configurations_in_one_group_share_what_their_replicas_know() -> None:
    loop, capped = ControlLoop(), batching(policy="static", max_running={"max": 48})
    loop.exchange(report(replica_id="a", lengths=moments_of([(100, 100)])), EXACT, 0.0)
    answer = loop.exchange(report(replica_id="b", lengths=moments_of([(300, 300)])), capped, 0.1)
    assert (answer.max_running, answer.replicas) == (48, 2)
    assert loop.exchange(report(replica_id="a", seq=2), EXACT, 0.4).max_running == 20_000 // 600
    assert loop.snapshot(0.4)["groups"]["g"]["policy"] == "paper, static"
    assert loop.configs() == {EXACT, capped}


def test_a_configuration_goes_with_its_last_replica() -> None:
    loop, capped = ControlLoop(), batching(policy="static")
    loop.exchange(report(replica_id="a"), EXACT, 0.0)
    loop.exchange(report(replica_id="b"), capped, 0.0)
    loop.exchange(report(replica_id="b", seq=2), EXACT, 1.0)  # it changed its own
    assert loop.configs() == {EXACT}
    loop.exchange(report(replica_id="c"), capped, 2.0)
    assert loop.configs() == {EXACT, capped}
    loop.exchange(report(replica_id="c", seq=2), capped, 18.0)  # no report of the others
    assert loop.configs() == {capped}


def test_each_replica_is_gone_after_three_leases_of_its_own() -> None:
    loop = ControlLoop()
    short, long = batching(lease_s=2.0), batching(lease_s=10.0)
    loop.exchange(report(replica_id="short"), short, 0.0)
    loop.exchange(report(replica_id="long"), long, 0.0)
    loop.exchange(report(replica_id="now"), long, 6.1)
    assert set(members(loop)) == {"long", "now"}
    loop.exchange(report(replica_id="now", seq=2), long, 30.1)
    assert set(members(loop)) == {"now"}


def test_a_changed_config_starts_a_new_policy_with_the_same_replicas() -> None:
    loop = ControlLoop()
    loop.exchange(report(replica_id="a", recent=recent(0.06, 120)), SLA, 0.0)
    loop.exchange(report(replica_id="b", lengths=moments_of([(100, 100)])), SLA, 0.1)
    capped = batching(policy="static", max_running={"max": 48})
    answer = loop.exchange(report(replica_id="a", seq=2), capped, 0.2)
    assert (answer.max_running, answer.reason, answer.replicas) == (48, "static", 2)
    assert loop.snapshot(0.2)["groups"]["g"]["policy"] == "paper, static"
    back = loop.exchange(report(replica_id="a", seq=3), SLA, 0.3)
    assert back.max_running == 100  # memory's: the old search is gone, the lengths are not


def of(c0: float, c1: float = 0.0, c2: float = 0.0) -> StepModel:
    return StepModel(c0, c1, c2, 0.0, 0.0, 0.0)


def takes(replica_id: str, model: StepModel | None, **overrides: object) -> ReplicaReport:
    """A replica that decoded ten requests a step and has this model of its steps."""
    known: dict[str, object] = {"recent": recent(0.02, 10.0), "lengths": moments_of([(100, 100)])}
    return report(replica_id=replica_id, model=model, **known | overrides)


@pytest.mark.parametrize(
    ("c0", "odd"), [(1.5, False), (1.501, True), (1 / 1.5, False), (0.666, True)]
)
def test_one_and_a_half_times_off_the_median_is_unlike(c0: float, odd: bool) -> None:
    fleet = [takes("a", of(1.0)), takes("b", of(1.0)), takes("c", of(c0))]
    assert unlike(fleet) == ({"c"} if odd else frozenset())


def test_three_of_whom_one_has_no_model_or_took_no_step_tell_nobody_apart() -> None:
    known = [takes("a", of(1.0)), takes("b", of(9.0))]
    assert unlike([*known, takes("c", None)]) == frozenset()
    assert unlike([*known, takes("c", of(1.0), recent=recent(0, 0, steps=0))]) == frozenset()
    assert unlike([*known, takes("c", of(1.0))]) == {"b"}


def test_who_is_unlike_is_asked_of_the_groups_average_batch() -> None:
    # 10 decodes that hold 150 tokens each; all three take 1.15 s for them, apart from c's 2 s.
    fleet = [
        takes("a", of(1.15)),
        takes("b", of(0.0, c1=0.1, c2=1e-4)),
        takes("c", of(0.5, c2=1e-3)),
    ]
    assert unlike(fleet) == {"c"}
    assert unlike([*fleet[:2], takes("c", of(0.0, c2=1.15 / 1500))]) == frozenset()


def test_one_that_is_unlike_gets_its_own_model_and_is_not_in_the_groups() -> None:
    slow = stats_of(linear_steps(c0=0.06, c1=6e-4))
    loop = ControlLoop()
    for number in range(3):
        loop.exchange(takes(f"r{number}", of(0.02, 2e-4), steps=STEPS), EXACT, 0.0)
    answer = loop.exchange(takes("slow", of(0.06, 6e-4), steps=slow), EXACT, 0.0)
    assert answer.model == fit(slow)
    assert loop.snapshot(0.0)["groups"]["g"]["pool"].model == fit(STEPS + STEPS + STEPS)
    assert answer.replicas == 4


def test_sixteen_that_join_are_in_the_pool_at_once_the_next_waits_its_quarter_second() -> None:
    loop = ControlLoop()
    for number in range(16):
        answer = loop.exchange(report(replica_id=str(number)), EXACT, 0.0)
        assert answer.replicas == number + 1
    assert loop.exchange(report(replica_id="16"), EXACT, 0.24).replicas == 16
    assert loop.exchange(report(replica_id="17"), EXACT, 0.25).replicas == 18


def test_exchanges_are_counted_and_joining_is_dated_by_them() -> None:
    loop = ControlLoop()
    for seq in (1, 2):
        for replica_id in ("a", "b"):
            loop.exchange(report(replica_id=replica_id, seq=seq), EXACT, seq)
    known = loop.snapshot(2.5)
    assert known["exchanges"] == 4
    assert known["groups"]["g"]["replicas"]["a"]["age_s"] == 0.5
    replicas = known["groups"]["g"]["replicas"]
    assert {r: replicas[r]["joined_at_exchange"] for r in replicas} == {"a": 1, "b": 2}


def counts(total: int, bins: int = BINS) -> tuple[int, ...]:
    return (total, *[0] * (bins - 1))


@pytest.mark.parametrize(
    ("own", "group", "told"),
    [
        (counts(0), ENDS_KEPT, None),  # the group knows no more than one ring
        (counts(0), ENDS_KEPT + 1, ENDS_KEPT + 1),
        (counts(ENDS_KEPT - 1), 2, ENDS_KEPT + 1),
        (counts(ENDS_KEPT), 2, None),  # it knows enough itself
        ((), 2 * ENDS_KEPT, None),  # its policy keeps none
        (counts(0, BINS - 1), 2 * ENDS_KEPT, None),
    ],
)
def test_the_groups_output_lengths_go_to_those_that_know_too_few(own, group, told):
    loop, config = ControlLoop(), batching(policy="adaptive")
    loop.exchange(report(replica_id="a", outputs=counts(group)), config, 0.0)
    outputs = loop.exchange(report(replica_id="b", outputs=own), config, 0.0).outputs
    assert (None if outputs is None else sum(outputs)) == told


def test_a_report_a_lease_after_the_last_is_no_old_news() -> None:
    loop = ControlLoop()
    first = loop.exchange(report(seq=5, running=50), EXACT, 0.0)
    assert loop.exchange(report(seq=5, running=40), EXACT, 4.999) is first
    assert loop.exchange(report(seq=5, running=40), EXACT, 5.0) is not first


def test_cap_and_capacity_are_by_the_share_of_the_sla_that_steps_are_held_to() -> None:
    def answer(itl_ms: float, **fields: Any) -> BatchLimits:
        known = report(lengths=moments_of([(1, 100)]), steps=stats_of(linear_steps()), **fields)
        config = batching(policy="adaptive", sla={"itl_ms": itl_ms})
        return ControlLoop().exchange(known, config, 0.0)

    held, shorter = answer(30, itl_frac=0.9), answer(27)
    assert held.max_running == shorter.max_running < answer(30).max_running
    assert held.capacity_per_s == shorter.capacity_per_s
    # One decode takes 20.2 ms: nine tenths of 22.5 are infeasible, which the SLA is not.
    assert not answer(22.5, itl_frac=0.9).sla_out_of_reach


STATIC = batching(policy="static")


def asked(loop: ControlLoop, said: ReplicaReport, now_s: float = 0.0) -> BatchLimits:
    return loop.exchange(said, STATIC, now_s)


def test_a_switch_goes_along_with_the_limits_and_leaves_them_as_they_are() -> None:
    loop = ControlLoop()
    before = asked(loop, report())
    made = loop.switch(enforce=False, group=None, unix_s=3.0)
    assert made == Switch(3000, False)
    after = asked(loop, report(seq=2))
    assert after == replace(before, switches=(made,))
    assert asked(loop, report(group="comes later")).switches == (made,)


def test_a_report_sent_twice_receives_a_switch_too() -> None:
    loop = ControlLoop()
    first = asked(loop, report())
    made = loop.switch(enforce=False, group="g", unix_s=3.0)
    assert asked(loop, report()) == replace(first, switches=(made,))


def test_a_report_that_is_refused_for_its_configuration_is_listened_to() -> None:
    loop, switch = ControlLoop(), Switch(5, False)
    with pytest.raises(ValueError, match="above max_num_seqs"):
        loop.exchange(report(switches=(switch,)), batching(max_running={"max": 999}), 0.0)
    assert asked(loop, report(replica_id="other")).switches == (switch,)


def test_the_snapshot_says_for_which_groups_it_is_off() -> None:
    loop = ControlLoop()
    for group in ("a", "b"):
        asked(loop, report(group=group))
    loop.switch(enforce=False, group="a", unix_s=1.0)
    groups = loop.snapshot(0.0)["groups"]
    assert {name: known["on"] for name, known in groups.items()} == {"a": False, "b": True}


def test_while_it_is_off_the_capacity_is_not_that_of_the_decided_cap() -> None:
    known = report(lengths=moments_of([(100, 100)]), steps=stats_of(linear_steps()))
    capped = batching(paper={"memory": "exact"}, max_running={"max": 10})
    loop = ControlLoop()
    on = loop.exchange(known, capped, 0.0)
    loop.switch(enforce=False, group="g", unix_s=1.0)
    off = loop.exchange(replace(known, seq=2), capped, 0.5)
    loop.switch(enforce=True, group=None, unix_s=2.0)
    again = loop.exchange(replace(known, seq=3), capped, 1.0)
    assert [limits.max_running for limits in (on, off, again)] == [10, 10, 10]
    assert on.capacity_per_s == again.capacity_per_s == pytest.approx(1 / 0.22, rel=0.01)
    # Memory holds 133 of 150, as with `enforce: false`.
    assert off.capacity_per_s == pytest.approx(1 / (2 / 133 + 0.02), rel=0.01)


def test_a_search_starts_anew_when_its_caps_are_applied_again() -> None:
    # Algorithm 2 goes up to the 240 that decode, on caps that nobody keeps to.
    sla = batching(sla={"itl_ms": 50}, paper={"memory": "exact"})
    slow = recent(0.08, 200.0)
    answers = []
    for enforced in (False, True):
        loop = ControlLoop()
        for seq in range(1, 20):
            said = report(seq=seq, enforced=enforced, recent=recent(0.01, 240.0))
            loop.exchange(said, sla, seq / 2)
        answers.append(loop.exchange(report(seq=20, recent=slow), sla, 10.0).max_running)
    fresh = ControlLoop().exchange(report(recent=slow), sla, 0.0).max_running
    assert answers[0] == fresh == 100
    assert answers[1] == 246  # what it found while it was on is what it goes on from


ITL = {"itl_ms": 50}
ADAPTIVE = batching(policy="adaptive", sla=ITL)
LENGTHS = moments_of([(100, 100)] * 50)


def healthy(replica_id: str, slower: float = 1.0, seq: int = 1) -> ReplicaReport:
    """A replica whose steps take ``slower`` x (20 ms + 0.2 ms per decode)."""
    steps = [replace(s, duration_s=s.duration_s * slower) for s in linear_steps()]
    return report(
        replica_id=replica_id,
        seq=seq,
        engine=engine(kv_tokens=10**6),
        lengths=LENGTHS,
        steps=stats_of(steps),
        recent=recent(0.03, 50),
        model=StepModel(0.02 * slower, 2e-4 * slower, 0.0, 0.0, 0.0, 0.0),
    )


def exchange_all(loop: ControlLoop, reports: list[ReplicaReport]) -> dict[str, BatchLimits]:
    """Two rounds, so that each is answered with all in the pool."""
    for now_s in (1.0, 2.0):
        said = {
            r.replica_id: loop.exchange(replace(r, seq=int(now_s)), ADAPTIVE, now_s)
            for r in reports
        }
    return said


def test_a_slow_replica_is_left_out_and_capped_by_its_own_steps() -> None:
    fleet = [healthy(f"r{k}") for k in range(4)] + [healthy("slow", 2.0)]
    said = exchange_all(ControlLoop(), fleet)
    alone = exchange_all(ControlLoop(), [healthy("r0")])["r0"]
    assert said["r0"].model is not None
    assert alone.model is not None
    assert said["r0"].model.c1 == pytest.approx(alone.model.c1, rel=0.05)
    assert said["r0"].max_running == alone.max_running
    # 40 ms + 0.4 ms per decode: 25 where the others run 150.
    assert said["slow"].max_running == pytest.approx(25, abs=3)
    assert said["r0"].max_running == pytest.approx(150, abs=5)


@pytest.mark.parametrize("policy", ["adaptive", "paper"])
def test_a_clock_that_jumps_does_not_move_a_cap_out_of_its_bounds(policy: str) -> None:
    config = batching(policy=policy, sla=ITL, max_running={"min": 4, "max": 60})
    loop = ControlLoop()
    for seq, now_s in enumerate((1.0, 1e9, 5.0, -3.0, 5.5, 1e9 + 1), 1):
        limits = loop.exchange(healthy("a", seq=seq), config, now_s)
        assert 4 <= limits.max_running <= 60


def slow_to_start(decodes: int) -> float:
    return 0.02 + 3e-4 * decodes


def test_alone_for_a_minute_a_replica_keeps_the_sla() -> None:
    config = BatchingConfig.model_validate(
        {"policy": "adaptive", "sla": {"itl_ms": 50}, "lease_s": 2}
    )
    plant = Plant(config, slow_to_start, engine(kv_tokens=10**6))
    for _ in range(80):
        plant.window(1000)
    settled = plant.loop.snapshot(plant.now_s)["groups"]["plants"]["replicas"]["plant"]
    until_s = plant.now_s + 60
    while plant.now_s < until_s:  # no exchange any more: the lease runs out
        plant._step(1000)
    said = plant.governor.report(plant._state(1000), plant.now_s, "plant", "plants")
    assert said.mode == "fallback"
    assert said.max_running == pytest.approx(settled["limits"].max_running, rel=0.1)
