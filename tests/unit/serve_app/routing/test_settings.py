"""The ``router`` block, and what Ray Serve is told for it."""

from typing import Any

import pytest

from controller.errors import ConfigError
from serve_app.config import ray_llm_config
from serve_app.routing.settings import CLASSES

MODEL = {"model_id": "llama", "model_source": "org/llama"}


def routed_by(**keys: Any) -> dict[str, Any]:
    made = ray_llm_config({"model_loading_config": MODEL, **keys})
    assert "router" not in made
    config: dict[str, Any] = made["deployment_config"]["request_router_config"]
    return config


def problems(**keys: Any) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        routed_by(**keys)
    return refused.value.problems


def test_requests_go_where_most_room_is_unless_another_way_is_named() -> None:
    assert routed_by() == {
        "request_router_class": "serve_app.routing.router:HeadroomRouter",
        "request_router_kwargs": {"prefix_affinity": False},
        "request_routing_stats_period_s": 0.5,
    }
    other = routed_by(router={"policy": "round_robin"})
    assert other["request_router_class"] == CLASSES["round_robin"]
    assert other["request_router_kwargs"] == {}


ONE = {"num_replicas": 1}


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        ({"deployment_config": ONE}, False),
        ({"router": {"policy": "haproxy"}}, False),
        ({"router": {"policy": "haproxy"}, "deployment_config": {"num_replicas": 3}}, False),
        ({"deployment_config": ONE, "router": {}}, True),
        ({"deployment_config": ONE, "router": {"policy": "power_of_two"}}, True),
        ({"deployment_config": {"num_replicas": 2}}, True),
        ({"deployment_config": {"num_replicas": "auto"}}, True),
        ({"deployment_config": {"autoscaling_config": {"max_replicas": 2}}}, True),
    ],
)
def test_no_router_is_asked_where_haproxy_is_to_choose_or_there_is_nothing_to_choose(
    keys: dict[str, Any], asked: bool
) -> None:
    made = ray_llm_config({"model_loading_config": MODEL, **keys})
    assert ("request_router_config" in made["deployment_config"]) is asked


def test_a_router_that_is_named_to_ray_serve_itself_stays() -> None:
    mine = {"request_router_class": "mine:Router"}
    assert routed_by(deployment_config={"request_router_config": mine}) == mine
    assert problems(
        deployment_config={"request_router_config": mine}, router={"policy": "headroom"}
    ) == [
        "llm_configs[0].router: is not allowed with deployment_config.request_router_config,"
        " which also names a router; leave one of them out"
    ]


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"polcy": "headroom"}, "unknown key 'polcy'; did you mean 'policy'?"),
        ({"policy": "nearest"}, ".policy: 'nearest' is not allowed"),
        ({"choices": 8}, "choices was removed: four replicas are compared"),
        ([], "[] is not allowed"),
    ],
)
def test_what_is_wrong_with_the_block_is_said_in_one_line(block: Any, said: str) -> None:
    (line,) = problems(router=block)
    assert line.startswith("llm_configs[0].router")
    assert said in line


def test_classes_are_gathered_by_what_they_are_promised_where_that_is_asked_for() -> None:
    classes = {
        "gold": {"itl_ms": 50, "ttft_ms": 2000},
        "batch": {"default": True, "queue_timeout_s": 600},
    }
    told = routed_by(router={"gather_classes": True}, classes=classes)["request_router_kwargs"]
    assert told["gathered"] == {"gold": (50.0, 2.0), "batch": (None, 600.0)}
    assert "gather_classes" not in told
    assert "gathered" not in routed_by(classes=classes)["request_router_kwargs"]
    slower = {"profile": "paper-fig3", "time_scale": 4}
    told = routed_by(router={"gather_classes": True}, classes=classes, emulate=slower)[
        "request_router_kwargs"
    ]
    assert told["gathered"]["gold"] == (200.0, 8.0)


@pytest.mark.parametrize(
    "classes", [None, {"a": {"itl_ms": 50}}, {"a": {}, "b": {"ttft_ms": 9, "default": True}}]
)
def test_there_have_to_be_classes_that_can_be_gathered(classes: Any) -> None:
    (problem,) = problems(router={"gather_classes": True}, classes=classes)
    assert problem.startswith("llm_configs[0].router.gather_classes: true is not allowed without")
