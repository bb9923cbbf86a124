"""The slow loop on a clock that is a number: pooling, old and bad news, switches, soft state."""

from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest

from controller.config import BatchingConfig
from controller.errors import ConfigError, ReportError
from controller.fleet.loop import ControlLoop
from controller.models.survival import BINS, ENDS_KEPT, Exposure, length_bin
from controller.policies import registry
from controller.policies.base import Decision, Memory, Seen
from controller.records import BatchLimits, PackedRows, RecentSteps, ReplicaReport, StepSample
from controller.switch import Switch
from tests.builders import (
    batching,
    engine,
    governor,
    linear_steps,
    moments_of,
    recent,
    report,
    rows_of,
    sample,
    state,
)
from tests.plant import Plant

EXACT = batching(paper={"memory": "exact"})
SLA = batching(paper={"memory": "exact"}, sla={"itl_ms": 50})


def pooled(loop: ControlLoop, now_s: float = 0.0, group: str = "g") -> Any:
    return loop.snapshot(now_s)["groups"][group]["pool"]


def members(loop: ControlLoop, now_s: float = 0.0, group: str = "g") -> dict[str, Any]:
    return loop.snapshot(now_s)["groups"][group]["replicas"]


def test_groups_know_nothing_of_each_other() -> None:
    loop = ControlLoop()
    loop.exchange(report(group="g", lengths=moments_of([(100, 100)])), EXACT, 0)
    answer = loop.exchange(report(group="h"), EXACT, 0)
    assert answer.replicas == 1
    assert pooled(loop, group="h").lengths.n == 0


def test_beyond_what_one_controller_carries_period_and_lease_grow_together() -> None:
    loop = ControlLoop()

    def exchanged(seq: int, now_s: float) -> list[tuple[float, float]]:
        answers = [
            loop.exchange(report(replica_id=str(n), seq=seq), EXACT, now_s) for n in range(500)
        ]
        return [(answer.period_s, answer.lease_s) for answer in answers]

    assert exchanged(1, 0.0)[0] == (0.5, 5.0)
    assert exchanged(2, 1.0)[-1] == (2.0, 20.0)  # 500 twice a second are four times 250
    assert exchanged(3, 31.0)[-1] == (2.0, 20.0)  # two leases later: late, and not gone
    assert loop.sizes() == {"g": 500}
    assert loop.exchange(report(replica_id="0", seq=4), EXACT, 200.0).lease_s == 5.0


STEPS = rows_of(linear_steps())  # 20 ms, and 0.2 ms a decode
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
    answer = ControlLoop().exchange(report(rows=STEPS, **fields), batching(**block), 0)
    assert (answer.max_running, answer.enforce) == (cap, block.get("enforce", True))
    assert answer.capacity_per_s == pytest.approx(per_s, rel=0.01)


@pytest.mark.parametrize("policy", ["paper", "adaptive"])
@pytest.mark.parametrize(
    ("rows", "itl_ms", "out"),
    [
        (STEPS, 22.0, True),  # one decode takes 20.2 ms
        (STEPS, 23.0, False),
        (STEPS, None, False),
        (PackedRows(), 1.0, False),
        # No single step says that it is out of reach, however long.
        (rows_of([sample(duration_s=18.0)] * 1), 50.0, False),
        (rows_of([*linear_steps(10), sample(decodes=3, duration_s=18.0)]), 50.0, False),
    ],
)
def test_an_sla_is_out_of_reach_where_one_decode_takes_it(policy, rows, itl_ms, out):
    config = batching(policy=policy, sla={"itl_ms": itl_ms})
    assert ControlLoop().exchange(report(rows=rows), config, 0).sla_out_of_reach is out


def test_a_report_sent_twice_gets_the_same_answer_and_moves_nothing() -> None:
    loop = ControlLoop()
    first = report(seq=1, recent=recent(0.06, 120), rows=STEPS)
    answer = loop.exchange(first, SLA, 0.0)
    assert loop.exchange(first, SLA, 0.5) is answer
    again = {"memory": answer.memory, "rows": STEPS}
    second = loop.exchange(report(seq=2, recent=recent(0.06, 60), **again), SLA, 1.0)
    assert second.max_running == 30  # one window after the first, not two


def test_an_engine_that_started_anew_is_learned_from_its_first_step_on() -> None:
    loop = ControlLoop()
    loop.exchange(report(seq=9, rows=rows_of(linear_steps(300))), SLA, 0.0)
    anew = report(seq=1, rows=rows_of(linear_steps(20)))
    assert loop.exchange(anew, SLA, 60.0).wanted_row == 20


def test_a_report_that_was_overtaken_is_old_news() -> None:
    loop = ControlLoop()
    answer = loop.exchange(report(seq=5, running=50), SLA, 0.0)
    assert loop.exchange(report(seq=4, running=40), SLA, 0.5) is answer
    assert members(loop)["r1"]["report"].running == 50


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


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"running": -1}, r"report\.running: -1 is not allowed: a finite number from 0"),
        ({"arrival_rate_per_s": float("nan")}, r"report\.arrival_rate_per_s: nan"),
        ({"recent": RecentSteps(1, float("inf"), 1.0, 1.0)}, r"report\.recent\.itl_s: inf"),
        ({"rows": rows_of([sample(duration_s=-1.0)])}, r"report\.rows: -1\.0"),
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


def test_two_configurations_in_one_group_keep_a_policy_each() -> None:
    # As one reaches replica after replica; each search goes on as if it were alone.
    slow = batching(paper={"memory": "exact"}, sla={"itl_ms": 40})
    together, alone = ControlLoop(), {"a": ControlLoop(), "b": ControlLoop()}
    kept: dict[str, Memory] = {"a": {}, "b": {}}
    for seq in range(1, 9):
        for replica_id, config in (("a", SLA), ("b", slow)):
            own = {"replica_id": replica_id, "memory": kept[replica_id]}
            said = report(seq=seq, recent=recent(0.045, 40), **own)
            answer = together.exchange(said, config, seq / 2)
            kept[replica_id] = answer.memory
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


def test_a_report_a_lease_after_the_last_is_no_old_news() -> None:
    loop = ControlLoop()
    first = loop.exchange(report(seq=5, running=50), EXACT, 0.0)
    assert loop.exchange(report(seq=5, running=40), EXACT, 4.999) is first
    assert loop.exchange(report(seq=5, running=40), EXACT, 5.0) is not first


def test_cap_and_capacity_are_by_the_share_of_the_sla_that_steps_are_held_to() -> None:
    def answer(itl_ms: float, **fields: Any) -> BatchLimits:
        known = report(lengths=moments_of([(1, 100)]), rows=STEPS, **fields)
        config = batching(policy="adaptive", sla={"itl_ms": itl_ms})
        return ControlLoop().exchange(known, config, 0.0)

    held, shorter = answer(30, itl_frac=0.9), answer(27)
    assert held.max_running == shorter.max_running < answer(30).max_running
    assert held.capacity_per_s == shorter.capacity_per_s
    # One decode takes 20.2 ms: nine tenths of 23 are infeasible, which the SLA is not.
    assert not answer(23, itl_frac=0.9).sla_out_of_reach


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


def test_while_it_is_off_the_capacity_is_not_that_of_the_decided_cap() -> None:
    known = report(lengths=moments_of([(100, 100)]), rows=STEPS)
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
        loop, memory = ControlLoop(), dict[str, Any]()
        for seq in range(1, 20):
            own = {"enforced": enforced, "recent": recent(0.01, 240.0), "memory": memory}
            memory = loop.exchange(report(seq=seq, **own), sla, seq / 2).memory
        last = report(seq=20, recent=slow, memory=memory)
        answers.append(loop.exchange(last, sla, 10.0).max_running)
    fresh = ControlLoop().exchange(report(recent=slow), sla, 0.0).max_running
    assert answers[0] == fresh == 100
    assert answers[1] == 246  # what it found while it was on is what it goes on from


ITL = {"itl_ms": 50}
ADAPTIVE = batching(policy="adaptive", sla=ITL)
LENGTHS = moments_of([(100, 100)] * 50)


def healthy(replica_id: str, slower: float = 1.0, seq: int = 1) -> ReplicaReport:
    """A replica whose steps take ``slower`` x (20 ms + 0.2 ms per decode, 0.1 per prompt token)."""
    steps = [
        replace(s, prefill_tokens=p, duration_s=slower * (s.duration_s + 1e-4 * p))
        for s, p in zip(linear_steps(), cycle((0, 0, 50, 0, 90)), strict=False)
    ]
    return report(
        replica_id=replica_id,
        seq=seq,
        engine=engine(kv_tokens=10**6),
        lengths=LENGTHS,
        rows=rows_of(steps),
        recent=recent(0.03, 50),
    )


def exchange_all(loop: ControlLoop, reports: list[ReplicaReport]) -> dict[str, BatchLimits]:
    """Two rounds, so that each is answered with all in the pool."""
    for now_s in (1.0, 2.0):
        said = {
            r.replica_id: loop.exchange(replace(r, seq=int(now_s)), ADAPTIVE, now_s)
            for r in reports
        }
    return said


def test_one_that_is_unlike_gets_its_own_model_and_is_not_in_the_groups() -> None:
    for slower, odd in ((1.45, False), (1.55, True), (1 / 1.45, False), (1 / 1.55, True)):
        loop = ControlLoop()
        for name in ("a", "b", "c"):
            last = loop.exchange(healthy(name, slower if name == "c" else 1.0), EXACT, 0.0)
        known = pooled(loop).model
        assert last.model is not None and known is not None
        assert (known.c1 == pytest.approx(2e-4, rel=0.01)) is odd
        assert (last.model == known) is not odd
        assert (last.model.c1 == pytest.approx(slower * 2e-4, rel=0.01)) is odd


def test_three_of_whom_one_knows_no_model_or_took_no_step_tell_nobody_apart() -> None:
    for third in (
        report(replica_id="c", recent=recent(0.03, 50)),
        replace(healthy("c"), recent=RecentSteps()),
    ):
        loop = ControlLoop()
        for said in (healthy("a"), healthy("b", 4.0), third):
            loop.exchange(said, EXACT, 0.0)
        assert pooled(loop).model.c1 > 3e-4


def test_a_slow_replica_is_left_out_and_capped_by_its_own_steps() -> None:
    fleet = [healthy(f"r{k}") for k in range(4)] + [healthy("slow", 2.0)]
    said = exchange_all(ControlLoop(), fleet)
    alone = exchange_all(ControlLoop(), [healthy("r0")])["r0"]
    assert said["r0"].max_running == pytest.approx(alone.max_running, rel=0.05)
    # 40 ms + 0.4 ms per decode: a fifth of what the others run.
    assert said["slow"].max_running < 0.25 * said["r0"].max_running


@pytest.fixture
def tails(monkeypatch: pytest.MonkeyPatch) -> None:
    """``adaptive`` finds the tail that the engine remembers."""

    def decide(memory: Memory, seen: Seen) -> tuple[Decision, Memory]:
        model = replace(seen.fit.model, tail_frac=memory["tail"])
        return Decision(64, "sla", model=model), memory

    monkeypatch.setitem(registry.POLICIES, "adaptive", decide)


@pytest.mark.parametrize(
    ("measured", "published"),
    [((0.1, 0.2, 0.4), 0.2), ((0.0,) * 7 + (0.3,), 0.0), ((0.3,), 0.3)],
)
@pytest.mark.usefixtures("tails")
def test_the_group_has_the_tail_that_most_of_it_measured(measured, published):
    loop = ControlLoop()
    for seq in (1, 2):
        for number, tail in enumerate(measured):
            said = healthy(f"r{number}", seq=seq)
            loop.exchange(replace(said, memory={"tail": tail}), ADAPTIVE, float(seq))
    assert pooled(loop).model.tail_frac == published


def lengths_seen(tokens: int, ends: int) -> bytes:
    """So many answers of one length ended."""
    counts = np.zeros(BINS)
    counts[length_bin(tokens)] = ends
    seen = Exposure.of_finished(counts)
    return np.concatenate([seen.ended, seen.at_risk]).astype(np.float32).tobytes()


def test_a_newcomer_goes_by_the_lengths_of_its_group_until_it_knows_enough_itself() -> None:
    def cap(own: int, group: bool) -> int:
        loop, config = ControlLoop(), batching(policy="adaptive")
        for seq in (1, 2):
            if group:
                said = report(replica_id="a", seq=seq, lengths_seen=lengths_seen(1500, 600))
                loop.exchange(said, config, float(seq))
            said = report(replica_id="b", seq=seq, lengths_seen=lengths_seen(100, own))
            found = loop.exchange(said, config, float(seq)).max_running
        return found

    assert cap(0, group=True) < 0.5 * cap(100, group=False)
    assert cap(100, group=True) < 0.7 * cap(100, group=False)
    assert cap(ENDS_KEPT, group=True) == cap(ENDS_KEPT, group=False)


def test_lengths_of_those_that_are_here_are_pooled_and_forgotten_with_them() -> None:
    loop, config = ControlLoop(), batching(policy="adaptive", lease_s=2.0)
    for seq, ends in enumerate((300, 400), start=1):  # the later report takes the first's place
        said = report(replica_id="a", seq=seq, lengths_seen=lengths_seen(50, ends))
        loop.exchange(said, config, 0.0)
    loop.exchange(report(replica_id="b", lengths_seen=lengths_seen(90, 450)), config, 0.1)
    ended = pooled(loop).outputs.ended
    assert (ended[length_bin(50)], ended[length_bin(90)], ended.sum()) == (400, 450, 850)
    loop.exchange(report(replica_id="b", seq=2), config, 6.5)
    assert pooled(loop).outputs.ended.sum() == 0


def test_a_new_controller_has_the_same_pool_after_two_reports_of_each_replica() -> None:
    config = batching(policy="adaptive", sla=ITL)
    replicas = {name: governor(config) for name in ("a", "b", "c")}
    steps = linear_steps(600)

    def exchange(loop: ControlLoop, now_s: float, count: int) -> dict[str, BatchLimits]:
        told = {}
        for name, one in replicas.items():
            for s in steps[:count]:
                one.after_step(s, prefills=0)
                one.finished(80, 120)
            told[name] = loop.exchange(one.report(state(), now_s, name, "g"), config, now_s)
            one.apply(told[name], now_s)
        return told

    old, new = ControlLoop(), ControlLoop()
    for k in range(20):
        exchange(old, float(k), count=30)
    before = exchange(old, 20.0, count=0)
    exchange(new, 21.0, count=0)
    after = exchange(new, 21.5, count=0)
    assert pooled(new).lengths == pooled(old).lengths
    assert pooled(new).model.costs == pytest.approx(pooled(old).model.costs, rel=0.01, abs=1e-9)
    for name in replicas:
        assert after[name].max_running == pytest.approx(before[name].max_running, abs=1)
        assert after[name].wanted_row == before[name].wanted_row == 600
        assert after[name].memory["costs"] == pytest.approx(before[name].memory["costs"], rel=0.01)


def started(*, slowly: bool) -> list[StepSample]:
    """Ten steps of 36 ms, after one that took 18 s."""
    plain = [sample(decodes=1 + k % 4, kv_tokens=200, duration_s=0.036) for k in range(10)]
    first = sample(decodes=0, kv_tokens=0, prefill_tokens=30, started=(30,), duration_s=18.0)
    return [first, *plain] if slowly else plain


COLD = batching(policy="adaptive", sla={"itl_ms": 150})


def cold_start(*, slowly: bool, name: str = "r1") -> ReplicaReport:
    return report(
        replica_id=name,
        rows=rows_of(started(slowly=slowly)),
        engine=engine(kv_tokens=10**6),
        lengths=moments_of([(30, 60)] * 5),
        running=4,
        waiting=12,
        recent=recent(0.036, 3),
        batch=np.array([[60, 14, 100, 4]], np.float32).tobytes(),
    )


def test_a_first_step_of_18_s_is_forgotten_ten_steps_later() -> None:
    answer = ControlLoop().exchange(cold_start(slowly=True), COLD, 1.0)
    usual = ControlLoop().exchange(cold_start(slowly=False), COLD, 1.0)
    assert answer.max_running >= 8
    assert answer.max_running == pytest.approx(usual.max_running, rel=0.05)
    assert answer.capacity_per_s is None or answer.capacity_per_s > 0
    assert not answer.sla_out_of_reach


@pytest.mark.parametrize("steps", [12, 120])
@pytest.mark.parametrize("bad", [0, 5, 11])
def test_a_step_of_18_s_has_no_part_in_the_limits_of_another_replica(bad: int, steps: int) -> None:
    def led(slow_s: float | None) -> list[BatchLimits]:
        rows = linear_steps(steps)
        if slow_s:
            rows[bad] = replace(rows[bad], duration_s=slow_s)
        loop = ControlLoop()
        for now_s in (1.0, 2.0):
            seq = int(now_s)
            loop.exchange(replace(healthy("cold", seq=seq), rows=rows_of(rows)), ADAPTIVE, now_s)
            warm = loop.exchange(healthy("warm", seq=seq), ADAPTIVE, now_s)
            young = replace(cold_start(slowly=False, name="young"), seq=seq)
            told = [warm, loop.exchange(young, ADAPTIVE, now_s)]
        return told

    for one, other in zip(led(18.0), led(None), strict=True):
        assert one.max_running == pytest.approx(other.max_running, rel=0.05)
        assert one.target_s == pytest.approx(other.target_s, rel=0.05)
        assert one.capacity_per_s == pytest.approx(other.capacity_per_s, rel=0.05)
        assert one.capacity_per_s and not one.sla_out_of_reach


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
