"""What an engine is told: the short form of its SLA, and what disturbs an emulated accelerator."""

from typing import Any

import pytest

from controller.errors import ConfigError
from controller.validation import parse
from replicas.engine.settings import EmulateSettings, parse_settings
from replicas.profiles.disturbances import Disturbances, EncoderWork, Pauses, SlowPhases


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
    with pytest.raises(ConfigError, match=r"itl_ms beside batching is not allowed; write batching"):
        parse_settings({"brimful": {"itl_ms": 50, "batching": {"policy": "static"}}})
