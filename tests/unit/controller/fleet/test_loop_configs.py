"""Replicas of one group that bring different configurations: a policy each, one pool."""

from controller.fleet.loop import ControlLoop
from tests.builders import batching, moments_of, recent, report
from tests.unit.controller.fleet.test_control_loop import EXACT, SLA, members


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
