"""What an engine is told, and what a deployment's ``user_config`` may change while it runs."""

from typing import Any

import pytest

from controller.classes import parse_admission, parse_classes
from controller.errors import ConfigError
from controller.validation import parse
from replicas.door.settings import parse_security
from replicas.engine.settings import EmulateSettings, Live, parse_live, parse_settings, slowed
from replicas.profiles.disturbances import Disturbances, EncoderWork, Pauses, SlowPhases
from tests.builders import batching, governor, sample, state

ENTRYS = Live(batching(policy="adaptive", sla={"itl_ms": 50}))


def test_the_block_takes_the_place_of_the_entrys_own_and_is_stretched_as_that_was() -> None:
    changed = {"batching": {"policy": "adaptive", "sla": {"itl_ms": 80}}}
    assert parse_live(changed, ENTRYS, 1.0).batching.sla.itl_ms == 80
    assert parse_live(changed, ENTRYS, 4.0).batching.sla.itl_ms == 320
    assert parse_live({"batching": {}}, ENTRYS, 1.0).batching == batching(policy="adaptive")


@pytest.mark.parametrize("nothing", [None, {}, {"batching": None}])
def test_without_a_block_the_entrys_own_holds(nothing: Any) -> None:
    assert parse_live(nothing, Live(slowed(ENTRYS.batching, 4.0)), 4.0).batching.sla.itl_ms == 200


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
            "user_config.classes: is not allowed if the entry has neither classes nor admission",
        ),
        (
            {"admission": {}},
            "user_config.admission: is not allowed if the entry has neither an SLA nor classes",
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


def test_a_governor_under_another_block_keeps_what_it_measured() -> None:
    g = governor(batching(policy="adaptive", sla={"itl_ms": 50}))
    g.after_step(sample(decodes=9, duration_s=0.03), 0)
    g.finished(100, 50)
    before = g.report(state(), 1.0, "r", "g")
    g.configure(batching(policy="adaptive", sla={"itl_ms": 80}, enforce=False))
    after = g.report(state(), 1.0, "r", "g")
    kept = ("lengths", "rows", "itl", "lengths_seen", "finished")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert not after.enforced


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
    live = parse_live({"security": {"limits": {"max_sequences": 4}}}, entrys, 1.0)
    assert (live.security.keys, live.security.limits.max_sequences) == (guarded.keys, 4)
    assert parse_live({"security": {"keys": None}}, entrys, 1.0).security.keys is None
    other = parse_live({"security": {"keys": {"file": "/k"}}}, entrys, 1.0).security.keys
    assert other is not None
    assert other.file == "/k"


def emulate(**keys: Any) -> EmulateSettings:
    return parse(EmulateSettings, {"profile": "paper-fig3", **keys}, "emulate")


def test_disturbances_are_read_and_pass_through_a_dictionary() -> None:
    said = {
        "noise_cv": 0.1,
        "pauses": [{"share": 0.05, "mean_s": 0.03}],
        "slow": [{"share": 0.17, "factor": 2, "mean_s": 20}],
        "encoder": {"share": 0.3, "duration_s": 0.08},
        "mixed_s": 0.003,
        "graph_sizes": [1, 2, 4],
    }
    found = emulate(disturbances=said)
    assert found.disturbances == Disturbances(
        0.1,
        (Pauses(0.05, 0.03),),
        (SlowPhases(0.17, 2.0, 20.0),),
        EncoderWork(0.3, 0.08),
        0.003,
        (1, 2, 4),
    )
    assert emulate(**found.model_dump()) == found


@pytest.mark.parametrize(
    ("disturbances", "says"),
    [
        ({"pause": []}, "emulate.disturbances: unknown key 'pause'; did you mean 'pauses'?"),
        (
            {"pauses": [{"share": 0.1, "mean_ms": 3}]},
            "emulate.disturbances.pauses[0]: unknown key 'mean_ms'; did you mean 'mean_s'?",
        ),
        (
            {"pauses": [{"share": 2, "mean_s": 1}]},
            "pauses[0].share: 2 is not allowed: Input should",
        ),
        ({"pauses": [{"share": True, "mean_s": 1}]}, "pauses[0].share: True is not allowed"),
        (
            {"slow": [{"share": 0.1}]},
            "emulate.disturbances.slow[0].factor: required key is missing",
        ),
        ({"mixed_s": -1}, "emulate.disturbances.mixed_s: -1 is not allowed"),
        ({"graph_sizes": [0]}, "emulate.disturbances.graph_sizes[0]: 0 is not allowed"),
    ],
)
def test_a_wrong_disturbance_is_told_its_place(disturbances: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        emulate(disturbances=disturbances)
    assert any(says in problem for problem in refused.value.problems)


def test_the_sla_may_stand_in_short() -> None:
    short = parse_settings({"brimful": {"itl_ms": 50, "percentile": 95}})
    assert short == parse_settings(
        {"brimful": {"batching": {"sla": {"itl_ms": 50, "percentile": 95}}}}
    )
    assert short.batching.policy == "adaptive"
    with pytest.raises(ConfigError, match=r"brimful.batching.sla.itl_ms: 0 is not allowed"):
        parse_settings({"brimful": {"itl_ms": 0}})
    with pytest.raises(ConfigError, match=r"itl_ms with batching is not allowed; write batching"):
        parse_settings({"brimful": {"itl_ms": 50, "batching": {"policy": "static"}}})
    with pytest.raises(ConfigError, match=r"unknown key 'itl_mss'; did you mean 'itl_ms'\?"):
        parse_settings({"brimful": {"itl_mss": 50}})
