"""The slow loop on a clock that is a number: pooling, old and bad news, switches, soft state."""

from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest

from controller.config import BatchingConfig
from controller.errors import ReportError
from controller.fleet.loop import ControlLoop
from controller.models.survival import ENDS_KEPT
from controller.records import BatchLimits, PackedRows, RecentSteps, ReplicaReport
from tests.builders import (
    batching,
    engine,
    exposure,
    linear_steps,
    moments_of,
    recent,
    report,
    rows_of,
    sample,
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
        # No more run than the engine's size, and one if no request fits.
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


def test_while_it_is_off_the_capacity_is_not_that_of_the_decided_cap() -> None:
    loop, known, found = ControlLoop(), report(lengths=HUNDRED, rows=STEPS), []
    for seq, on in ((1, True), (2, False)):
        loop.switch(enforce=on, group="g", unix_s=float(seq))
        answer = loop.exchange(replace(known, seq=seq), batching(**CAPPED), float(seq))
        found.append(answer.capacity_per_s)
    # Memory holds 133 of 150, as with `enforce: false`.
    assert found == pytest.approx([1 / 0.22, 1 / (2 / 133 + 0.02)], rel=0.01)


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


def test_two_configurations_in_one_group_share_what_their_replicas_know() -> None:
    loop, capped = ControlLoop(), batching(policy="static", max_running={"max": 48})
    loop.exchange(report(replica_id="a", lengths=moments_of([(100, 100)])), EXACT, 0.0)
    answer = loop.exchange(report(replica_id="b", lengths=moments_of([(300, 300)])), capped, 0.1)
    assert (answer.max_running, answer.replicas) == (48, 2)
    assert loop.exchange(report(replica_id="a", seq=2), EXACT, 0.4).max_running == 20_000 // 600
    assert loop.snapshot(0.4)["groups"]["g"]["policy"] == "paper, static"
    assert loop.configs() == {EXACT, capped}


STATIC = batching(policy="static")


def asked(loop: ControlLoop, said: ReplicaReport, now_s: float = 0.0) -> BatchLimits:
    return loop.exchange(said, STATIC, now_s)


def test_a_report_sent_twice_receives_a_switch_too() -> None:
    loop = ControlLoop()
    first = asked(loop, report())
    made = loop.switch(enforce=False, group="g", unix_s=3.0)
    assert asked(loop, report()) == replace(first, switches=(made,))


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


def test_a_slow_replica_is_left_out_and_capped_by_its_own_steps() -> None:
    loop, fleet = ControlLoop(), [healthy(f"r{k}") for k in range(4)]
    said = exchange_all(loop, [*fleet, healthy("slow", 2.0)])
    known = pooled(loop, 2.0).model
    assert known is not None and known.c1 == pytest.approx(2e-4, rel=0.01)
    # 40 ms + 0.4 ms per decode: a fifth of what the others run.
    assert said["slow"].max_running < 0.25 * said["r0"].max_running


def lengths_seen(tokens: int, ends: int) -> bytes:
    """So many answers of one length ended."""
    seen = exposure([tokens] * ends)
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
