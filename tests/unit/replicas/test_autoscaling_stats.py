"""What a replica publishes for autoscaling: only what it keeps to."""

from controller.fleet.loop import ControlLoop
from replicas.autoscaling_stats import autoscaling_stats
from serve_app.autoscaling import CapacityPolicy
from tests.builders import batching, governor, limits, moments_of, report, state, stats_of
from tests.builders import linear_steps as steps
from tests.unit.serve_app.test_autoscaling import Context, metrics

ALWAYS = {"running": 10.0, "waiting": 5.0, "arrival_rate_per_s": 2.0}


def test_a_cap_that_is_applied_and_the_capacity_are_published() -> None:
    held = report(max_running=64, capacity_per_s=8.0)
    assert autoscaling_stats(held) == ALWAYS | {
        "sla_out_of_reach": 0.0,
        "max_running": 64.0,
        "capacity_per_s": 8.0,
    }


def test_an_unknown_capacity_is_left_out() -> None:
    assert "capacity_per_s" not in autoscaling_stats(report())


def test_where_the_cap_is_not_applied_the_engines_own_size_is_published() -> None:
    assert autoscaling_stats(report(max_running=1, enforced=False))["max_running"] == 256.0


def test_while_control_is_off_nothing_is_scaled_by_its_caps() -> None:
    # A cap of 4 would ask for 17 replicas for the 54 that run and wait; the engine holds 256.
    loop, capped = ControlLoop(), batching(policy="static", max_running={"max": 4})
    g = governor(capped)
    desired = []
    for seq, on in enumerate((True, False, True)):
        loop.switch(enforce=on, group=None, unix_s=float(seq))
        for _ in range(2):
            held = g.report(state(running=4 if on else 30, waiting=50), seq * 1.0, "r", "g")
            g.apply(loop.exchange(held, capped, seq * 1.0), seq * 1.0)
        published = autoscaling_stats(g.report(state(running=30, waiting=24), seq * 1.0, "r", "g"))
        scale = CapacityPolicy(0.85, drain_s=20.0, queue_factor=2.0, queue_for_s=0.0)
        desired.append(scale(Context(metrics(published)))[0])
    assert desired == [3, 1, 3]


def test_an_sla_out_of_reach_is_published_without_cap_and_capacity() -> None:
    held = report(max_running=1, capacity_per_s=0.0, sla_out_of_reach=True)
    assert autoscaling_stats(held) == ALWAYS | {"sla_out_of_reach": 1.0}


def test_a_report_has_the_capacity_of_the_limits_that_hold() -> None:
    g = governor()
    g.apply(limits(capacity_per_s=8.0), 0.0)
    assert (said := g.report(state(), 1.0, "r", "g")).capacity_per_s == 8.0
    assert not said.sla_out_of_reach
    g.apply(limits(capacity_per_s=0.0, sla_out_of_reach=True), 2.0)
    said = g.report(state(), 3.0, "r", "g")
    assert (said.capacity_per_s, said.sla_out_of_reach) == (0.0, True)


def test_forty_running_under_an_sla_out_of_reach_stay_one_replica() -> None:
    config = batching(policy="adaptive", sla={"itl_ms": 10})  # a decode alone takes 20.2 ms
    known = report(running=40, waiting=0, lengths=moments_of([(100, 100)]), steps=stats_of(steps()))
    decided = ControlLoop().exchange(known, config, 0.0)
    assert (decided.max_running, decided.capacity_per_s) == (1, 0.0)
    assert decided.sla_out_of_reach
    g = governor(config)
    g.apply(decided, 0.0)
    published = autoscaling_stats(g.report(state(running=40), 0.5, "r", "g"))
    scale = CapacityPolicy(0.85, drain_s=20.0, queue_factor=2.0, queue_for_s=30.0)
    assert scale(Context(metrics(published)))[0] == 1
