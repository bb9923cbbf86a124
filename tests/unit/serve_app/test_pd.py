"""Prefill and decode apart: what ``build_app`` makes of a pair, and what it refuses."""

from typing import Any

import pytest

from controller.errors import ConfigError
from replicas.door.settings import Security
from replicas.server.pd_server import DecodeServer, PrefillServer
from serve_app.build import build_app, pd_serving_args
from serve_app.checks.built import no_cluster
from tests.pd_configs import pd_args
from tests.serve_configs import entry, put

ENGINE = ("prefill_config", "engine_kwargs")
ONE_TOKEN = (
    "is not allowed: a prefill engine makes one token of each answer, and has no time between"
    " tokens; set it in decode_config. Allowed here: ttft_ms, percentile"
)


def settings(args: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the two engines are told, prefill first."""
    pair = pd_serving_args(args, Security())
    configs = pair.prefill_config, pair.decode_config
    told = [one.engine_kwargs["additional_config"]["brimful"] for one in configs]
    return told[0], told[1]


def test_each_half_has_its_server_class_its_role_and_its_group() -> None:
    pair = pd_serving_args(pd_args(), Security())
    prefill, decode = settings(pd_args())
    assert pair.prefill_config.server_cls is PrefillServer
    assert pair.decode_config.server_cls is DecodeServer
    assert (prefill["role"], decode["role"]) == ("prefill", "decode")
    assert prefill["group"].endswith("-prefill")
    assert decode["group"].endswith("-decode")


def test_a_prefill_engine_takes_the_time_to_first_token_and_no_time_between_tokens() -> None:
    prefill, decode = settings(pd_args())
    assert decode["batching"]["sla"]["itl_ms"] == 50
    assert prefill["batching"]["sla"] == {"itl_ms": None, "ttft_ms": 2000, "percentile": 99}
    assert prefill["batching"]["lease_s"] == 7


def test_classes_of_decode_hold_for_prefill_without_their_itl() -> None:
    classes = {"gold": {"itl_ms": 20, "ttft_ms": 500, "default": True}}
    prefill, decode = settings(put(pd_args(), ("decode_config", "classes"), classes))
    assert decode["classes"]["gold"]["itl_ms"] == 20
    assert prefill["classes"]["gold"] == {**decode["classes"]["gold"], "itl_ms": None}


def test_kv_that_cannot_be_loaded_is_computed_by_the_decode_engine_unless_told_otherwise() -> None:
    kv = ("decode_config", "engine_kwargs", "kv_transfer_config")
    policy = "kv_load_failure_policy"
    pair = pd_serving_args(pd_args(), Security())
    assert pair.decode_config.engine_kwargs["kv_transfer_config"][policy] == "recompute"
    own = pd_serving_args(put(pd_args(), (*kv, policy), "fail"), Security())
    assert own.decode_config.engine_kwargs["kv_transfer_config"][policy] == "fail"


def test_the_application_is_an_ingress_a_decode_and_a_prefill_deployment() -> None:
    with no_cluster():
        app = build_app(pd_args())
    ingress = app._bound_deployment
    (decode,) = ingress.init_kwargs["llm_deployments"].values()
    prefill = decode._bound_deployment.init_kwargs["prefill_server"]
    assert ingress.name == "AdmissionIngress"
    assert decode._bound_deployment.name == "Decode:m"
    assert prefill._bound_deployment.name == "Prefill:m"


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (
            ("llm_configs",),
            [entry()],
            "args: llm_configs is not allowed with prefill_config and decode_config: an"
            " application serves whole engines, or one model with prefill and decode apart; make"
            " two applications",
        ),
        (("prefill_config",), None, "args.prefill_config: required key is missing with"),
        (("decode_config",), None, "args.decode_config: required key is missing with"),
        (
            ("prefill_config", "model_loading_config", "model_id"),
            "n",
            "prefill_config.model_loading_config.model_id: 'n' is not allowed: decode_config has"
            " 'm', and both are of one model",
        ),
        (
            (*ENGINE, "kv_transfer_config"),
            None,
            "prefill_config.engine_kwargs.kv_transfer_config: None is not allowed: a mapping with a"
            " kv_connector, by which KV gets from one engine to the other; as {kv_connector:"
            " NixlConnector, kv_role: kv_producer}",
        ),
        (
            (*ENGINE, "kv_transfer_config", "kv_role"),
            "kv_consumer",
            "prefill_config.engine_kwargs.kv_transfer_config.kv_role: 'kv_consumer' is not allowed:"
            " kv_producer or kv_both",
        ),
        (
            ("prefill_config", "model_loading_config", "model_source"),
            "/other",
            "prefill_config.model_loading_config.model_source: '/other' is not allowed:"
            " decode_config has",
        ),
        (
            (*ENGINE, "chat_template"),
            "t.jinja",
            "prefill_config.engine_kwargs.chat_template: 't.jinja' is not allowed: decode_config"
            " has None, and one engine reads what the other computed",
        ),
        (
            ("decode_config", "engine_kwargs", "kv_cache_dtype"),
            "fp8",
            "prefill_config.engine_kwargs.kv_cache_dtype: None is not allowed: decode_config has"
            " 'fp8'",
        ),
        (
            (*ENGINE, "kv_transfer_config", "kv_connector"),
            "LMCacheConnectorV1",
            "prefill_config.engine_kwargs.kv_transfer_config.kv_connector: 'LMCacheConnectorV1' is"
            " not allowed: decode_config has 'NixlConnector'",
        ),
        (
            ("prefill_config", "deployment_config"),
            {"autoscaling_config": {"min_replicas": 0, "max_replicas": 2}},
            "prefill_config.deployment_config.autoscaling_config.min_replicas: 0 is not allowed:"
            " without a prefill engine decode engines ask for none",
        ),
        (
            (*ENGINE, "data_parallel_size"),
            2,
            "prefill_config.engine_kwargs.data_parallel_size: 2 is not allowed with prefill and"
            " decode apart: 1; num_replicas makes more engines",
        ),
        (
            ("decode_config", "emulate"),
            {"profile": "fig3"},
            "decode_config.emulate: is not allowed with prefill and decode apart: an emulated"
            " accelerator has no KV to hand over",
        ),
        (
            ("prefill_config", "batching"),
            {"sla": {"itl_ms": 50}},
            f"prefill_config.batching.sla.itl_ms: 50 {ONE_TOKEN}",
        ),
        (
            ("prefill_config", "classes"),
            {"a": {"default": True}},
            "prefill_config.classes: is not allowed: the classes of decode_config hold for"
            " both; leave it out",
        ),
        (("llm_config",), {}, "args: unknown key 'llm_config'"),
        (("prefill_config",), 5, "prefill_config: 5 is not allowed: a mapping, the path of one"),
        (
            ("decode_config", "batching", "lease"),
            1,
            "decode_config.batching: unknown key 'lease'; did you mean 'lease_s'?",
        ),
    ],
)
def test_what_is_wrong_with_a_pair_is_one_line(path: Any, value: Any, line: str) -> None:
    with pytest.raises(ConfigError) as raised:
        build_app(put(pd_args(), path, value))
    (said,) = raised.value.problems
    assert said.startswith(line)


def test_a_running_prefill_engine_takes_no_itl_either() -> None:
    live = {"batching": {"sla": {"itl_ms": 50}}}
    (said,) = PrefillServer._live_problems(None, live)
    assert said == f"user_config.batching.sla.itl_ms: 50 {ONE_TOKEN}"
    assert DecodeServer._live_problems(None, live) == []
