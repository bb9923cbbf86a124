"""What a deployment's ``user_config`` may change while engines run."""

from typing import Any

import pytest

from controller.classes import parse_admission, parse_classes
from controller.config import parse_batching
from controller.errors import ConfigError
from controller.models.step_time import StepModel
from replicas.door.settings import parse_security
from replicas.engine.settings import Live, parse_live, parse_settings, slowed
from tests.builders import batching, governor, limits, sample, state

ENTRYS = Live(batching(policy="adaptive", sla={"itl_ms": 50}))


def test_the_block_takes_the_place_of_the_entrys_own_and_is_stretched_as_that_was() -> None:
    changed = {"batching": {"policy": "adaptive", "sla": {"itl_ms": 80}}}
    assert parse_live(changed, ENTRYS, 1.0).batching.sla.itl_ms == 80
    assert parse_live(changed, ENTRYS, 4.0).batching.sla.itl_ms == 320
    assert parse_live({"batching": {}}, ENTRYS, 1.0).batching == batching(policy="adaptive")


@pytest.mark.parametrize("nothing", [None, {}, {"batching": None}])
def test_without_a_block_the_entrys_own_holds(nothing: Any) -> None:
    assert parse_live(nothing, Live(slowed(ENTRYS.batching, 4.0)), 4.0).batching.sla.itl_ms == 200


def test_slowed_or_not_no_time_is_longer_than_may_be_agreed() -> None:
    longest = parse_batching({"sla": {"itl_ms": 86_400_000, "ttft_ms": 50_000_000}})
    again = parse_batching(slowed(longest, 2.0).model_dump())
    assert (again.sla.itl_ms, again.sla.ttft_ms) == (86_400_000, 86_400_000)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"batchin": {}}, "user_config: unknown key 'batchin'; did you mean 'batching'?"),
        ({"batching": {"lease": 3}}, "user_config.batching: unknown key 'lease'; did you mean"),
        ({"batching": {"lease_s": 0}}, "user_config.batching.lease_s: 0 is not allowed"),
        ({"batching": 3}, "user_config.batching: 3 is not allowed"),
        ("batching", "user_config: 'batching' is not allowed"),
        (
            {"classes": {"gold": {"ttft_ms": -1}}},
            "user_config.classes.gold.ttft_ms: -1 is not allowed",
        ),
        ({"admission": {"shed_at": 2}}, "user_config.admission.shed_at: 2 is not allowed"),
        (
            {"classes": {"gold": {}}},
            "user_config.classes: is not allowed where the entry has neither classes nor admission",
        ),
        (
            {"admission": {}},
            "user_config.admission: is not allowed where the entry has neither an SLA nor classes",
        ),
        (
            {"admission": {"longest_wait_s": True}},
            "user_config.admission.longest_wait_s: True is not allowed: seconds above 0 and up to",
        ),
    ],
)
def test_what_is_wrong_is_named(wrong: Any, said: str) -> None:
    entrys = Live(batching(policy="adaptive"))  # without an SLA nobody is ever refused
    with pytest.raises(ConfigError) as refused:
        parse_live(wrong, entrys, 1.0)
    assert str(refused.value).startswith(said)


CLASSES = parse_classes({"gold": {"ttft_ms": 1000}, "batch": {"priority": 9, "default": True}})
ADMITTING = Live(ENTRYS.batching, CLASSES, parse_admission({"shed_at": 0.5}))


def test_classes_and_admission_take_the_place_of_the_entrys_own_each_for_itself() -> None:
    live = parse_live({"classes": {"gold": {"ttft_ms": 300}}}, ADMITTING, 2.0)
    assert live.classes is not None
    assert live.classes.by_name.keys() == {"gold"}
    assert live.classes.by_name["gold"].deadline_s == 0.6
    assert (live.batching, live.admission) == (ADMITTING.batching, ADMITTING.admission)
    live = parse_live({"admission": {"max_waiting": 3}}, ADMITTING, 2.0)
    assert live.admission == parse_admission({"max_waiting": 3})
    assert live.classes == CLASSES
    assert parse_live(None, ADMITTING, 2.0) == ADMITTING


def test_an_engine_that_serves_in_order_of_arrival_gets_no_priorities() -> None:
    several = {"a": {"priority": 1}, "b": {"priority": 2, "default": True}}
    with pytest.raises(ConfigError, match=r"user_config.classes: several priorities are not"):
        parse_live({"classes": several}, ADMITTING, 1.0, ordered=False)
    alike = {"a": {"priority": 1}, "b": {"priority": 1, "default": True}}
    assert parse_live({"classes": alike}, ADMITTING, 1.0, ordered=False).classes is not None


def test_without_classes_admission_goes_by_the_slas_time_to_first_token() -> None:
    live = Live(batching(sla={"itl_ms": 50, "ttft_ms": 700}), None, parse_admission(None))
    assert deadline_s(live) == 0.7
    assert ADMITTING.let_in_by() == (CLASSES, ADMITTING.admission)


def deadline_s(live: Live) -> float:
    return live.let_in_by()[0].by_name["default"].deadline_s


@pytest.mark.parametrize(
    ("sla", "admission", "wait_s"),
    [
        ({"itl_ms": 50}, None, 30.0),
        ({"ttft_ms": 2000}, None, 30.0),
        ({"itl_ms": 50, "ttft_ms": 20_000}, None, 100.0),
        ({"itl_ms": 50}, {"longest_wait_s": 12}, 12.0),
        ({}, {"longest_wait_s": 12}, 12.0),
        ({"itl_ms": 50}, {"longest_wait_s": "off"}, 86_400.0),
        ({"itl_ms": 50}, {"longest_wait_s": False}, 86_400.0),  # a plain off in YAML
        ({}, None, 86_400.0),  # of a replica that was started under an SLA
    ],
)
def test_the_longest_wait_is_the_only_reason_to_refuse_where_it_is_all_there_is(
    sla: dict[str, float], admission: dict[str, object] | None, wait_s: float
) -> None:
    block = None if admission is None else parse_admission(admission)
    live = Live(batching(sla=sla), None, block)
    assert live.guarded == bool(sla or admission)
    assert deadline_s(live) == wait_s
    classes, config = live.let_in_by()
    assert config.max_waiting is not None
    assert config.max_waiting >= 10**9
    assert classes.by_name["default"].queue_timeout_s == 86_400.0


def test_with_a_longest_wait_the_queue_is_bounded_only_where_that_is_asked_for() -> None:
    block = parse_admission({"longest_wait_s": 12, "max_waiting": 7, "max_body_mb": 3})
    _, config = Live(batching(sla={"itl_ms": 50}), None, block).let_in_by()
    assert (config.max_waiting, config.max_body_mb) == (7, 3)


def test_the_longest_wait_is_switched_while_a_replica_runs() -> None:
    off = parse_live({"admission": {"longest_wait_s": "off"}}, ENTRYS, 1.0)
    assert (deadline_s(ENTRYS), deadline_s(off)) == (30.0, 86_400.0)
    assert deadline_s(parse_live(None, ENTRYS, 1.0)) == 30.0
    with pytest.raises(ConfigError, match=r"user_config.admission.longest_wait_s: 5.0 is not all"):
        parse_live({"admission": {"longest_wait_s": 5}}, ADMITTING, 1.0)


def test_the_entrys_own_are_those_of_the_engines_settings() -> None:
    wire = {"classes": CLASSES.to_wire(), "admission": {"shed_at": 0.5}}
    made = parse_settings({"brimful": wire}).live
    assert (made.classes, made.admission) == (CLASSES, ADMITTING.admission)
    assert parse_settings({}).live.admission is None


def test_a_governor_under_another_block_keeps_what_it_measured() -> None:
    g = governor(batching(policy="adaptive", sla={"itl_ms": 50}))
    g.apply(limits(max_running=7, model=StepModel(0.02, 2e-4, 0.0, 1e-4, 0.0, 0.0)), 0.0)
    for k in range(120):
        b, p = 1 + k % 60, 50 * (k % 5)
        took_s = 0.02 + 2e-4 * b + 1e-4 * p
        g.after_step(sample(decodes=b, kv_tokens=0, prefill_tokens=p, duration_s=took_s), 0)
        g.finished(100, 50)
    before = g.report(state(), 1.0, "r", "g")
    g.configure(batching(policy="adaptive", sla={"itl_ms": 80}, enforce=False))
    after = g.report(state(), 1.0, "r", "g")
    for name in ("lengths", "rows", "itl", "lengths_seen", "arrivals", "finished", "model"):
        assert getattr(after, name) == getattr(before, name), name
    assert g.config.sla.itl_ms == 80
    assert not after.enforced


def test_a_switch_outlasts_another_block() -> None:
    from controller.switch import next_switch

    g = governor(batching(policy="static"))
    g.apply(limits(switches=(next_switch((), enforce=False, group=None, unix_s=1.0),)), 0.0)
    g.configure(batching(policy="static", max_running={"max": 4}))
    assert not g.enforced


def test_what_the_door_lets_in_may_change_too() -> None:
    entrys = Live(ENTRYS.batching, security=parse_security({"extra_paths": ["/tokenize"]}))
    assert parse_live({"batching": {}}, entrys, 1.0).security == entrys.security
    live = parse_live({"security": {"extra_paths": ["/load"]}}, entrys, 1.0)
    assert live.security.extra_paths == ["/load"]
    with pytest.raises(ConfigError, match=r"^user_config.security.extra_paths: \['load'\] is not"):
        parse_live({"security": {"extra_paths": ["load"]}}, entrys, 1.0)


def test_limits_that_change_leave_the_keys_where_they_are() -> None:
    guarded = parse_security({"keys": {"env": "KEYS"}})
    entrys = Live(ENTRYS.batching, security=guarded)
    live = parse_live({"security": {"limits": {"max_n": 4}}}, entrys, 1.0)
    assert (live.security.keys, live.security.limits.max_n) == (guarded.keys, 4)
    assert parse_live({"security": {"keys": None}}, entrys, 1.0).security.keys is None
    other = parse_live({"security": {"keys": {"file": "/k"}}}, entrys, 1.0).security.keys
    assert other is not None
    assert other.file == "/k"
