"""``batching.roles``: its requirements in an entry, and its display."""

from dataclasses import replace
from typing import Any

import pytest
from ray.serve.config import AutoscalingConfig

from controller.config import parse_batching
from controller.errors import ConfigError
from controller.records import BatchLimits, Role
from replicas.engine.settings import Live, parse_live
from serve_app.config import ray_llm_config
from serve_app.pd import role_entries
from tests.pd_configs import pd_args
from tests.unit.serve_app.snapshots import busy, snapshot_of

KV = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
BATCHING = {"sla": {"itl_ms": 50}, "roles": "auto"}


def entry(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "model_loading_config": {"model_id": "m"},
        "engine_kwargs": {"kv_transfer_config": KV},
        "deployment_config": {"num_replicas": 3},
        "batching": BATCHING,
    }
    return {**plain, **changes}


def problems(**changes: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        ray_llm_config(entry(**changes))
    return raised.value.problems


def scaled(least: int, most: int) -> dict[str, Any]:
    return {"autoscaling_config": {"min_replicas": least, "max_replicas": most}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine_kwargs": {}}, "kv_transfer_config.kv_connector: None is not allowed with"),
        (
            {
                "engine_kwargs": {
                    "kv_transfer_config": {
                        "kv_connector": "NixlConnector",
                        "kv_role": "kv_producer",
                    }
                }
            },
            "kv_transfer_config.kv_role: 'kv_producer' is not allowed with batching.roles: kv_both",
        ),
        ({"batching": {"roles": "auto"}}, "batching.sla.itl_ms: None is not allowed with roles"),
        ({"batching": {**BATCHING, "policy": "static"}}, "batching.policy: 'static' is not"),
        (
            {"batching": {**BATCHING, "roles": 3}},
            "batching.roles.prefill: 3 is not allowed with llm_configs[0].deployment_config"
            ".num_replicas: 3: at most 2",
        ),
        (
            {"batching": {**BATCHING, "roles": 2}, "deployment_config": scaled(1, 4)},
            "batching.roles.prefill: 2 is not allowed with llm_configs[0].deployment_config"
            ".autoscaling_config.min_replicas: 1: at most 1",
        ),
        (
            {"batching": {**BATCHING, "roles": 4}, "deployment_config": scaled(4, 4)},
            "autoscaling_config.min_replicas: 4: at most 3",
        ),
        ({"deployment_config": scaled(0, 1)}, "autoscaling_config.max_replicas: 1 is not allowed"),
        ({"batching": {**BATCHING, "roles": "all"}}, "batching.roles: 'all' is not allowed"),
        ({"deployment_config": {}}, "num_replicas: 1 is not allowed with batching.roles"),
        ({"router": {"policy": "haproxy"}}, "router.policy: 'haproxy' is not allowed"),
        ({"router": {"policy": "round_robin"}}, "router.policy: 'round_robin' is not allowed"),
        ({"emulate": {"profile": "paper-fig3"}}, "emulate: is not allowed with batching.roles"),
    ],
)
def test_what_does_not_go_with_it_is_named(changes: dict[str, Any], said: str) -> None:
    found = problems(**changes)
    assert any(said in one for one in found), found
    assert all(one.startswith("llm_configs[0].") for one in found)


def test_engines_with_roles_for_good_have_none_to_change() -> None:
    args = pd_args()
    args["decode_config"]["batching"] = BATCHING
    with pytest.raises(ConfigError, match=r"decode_config\.batching\.roles: is not allowed"):
        role_entries(
            args["prefill_config"],
            args["decode_config"],
            {key: key for key in ("prefill_config", "decode_config")},
        )


def test_a_running_replica_takes_another_number_and_no_roles_that_it_was_not_started_for() -> None:
    block = {"batching": {**BATCHING, "roles": 1}}
    live = parse_live(block, Live(parse_batching(BATCHING)), 1.0)
    assert live.batching.roles is not None
    assert live.batching.roles.prefill == 1
    many = {"batching": {**BATCHING, "roles": 3}}
    for deployment, said in (
        ({"num_replicas": 3}, r"num_replicas: 3: at most 2"),
        ({"autoscaling_config": AutoscalingConfig(max_replicas=9)}, r"min_replicas: 1: at most 1"),
    ):
        with pytest.raises(ConfigError, match=rf"roles.prefill: 3 is not allowed with .*{said}"):
            parse_live(many, Live(parse_batching(BATCHING)), 1.0, deployment=deployment)
    with pytest.raises(ConfigError, match="roles: is not allowed if the entry has none"):
        parse_live(block, Live(parse_batching({"sla": {"itl_ms": 50}})), 1.0)
    with pytest.raises(ConfigError, match=r"user_config\.batching\.sla\.itl_ms"):
        parse_live({"batching": {"roles": 1}}, Live(parse_batching(BATCHING)), 1.0)


def shown(wanted: Role | None, held: Role | None, **changes: Any) -> dict[str, Any]:
    """A snapshot of one replica in a role."""
    seen = busy(role=held, **changes)
    known = snapshot_of((seen, parse_batching({"policy": "adaptive", **BATCHING})))
    (group,) = known["groups"].values()
    (replica,) = group["replicas"].values()
    limits: BatchLimits = replica["limits"]
    replica["limits"] = replace(limits, role=wanted)
    return known
