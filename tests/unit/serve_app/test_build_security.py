"""Where an application's ``security`` block goes: to replicas, and to Ray Serve LLM's ingress."""

from typing import Any

import pytest
from ray.llm._internal.serve.core.ingress.builder import IngressClsConfig
from ray.llm._internal.serve.core.ingress.ingress import OpenAiIngress

from controller.errors import ConfigError
from replicas.door.settings import parse_security
from replicas.settings import parse_settings
from serve_app.build import _guard, serving_args
from serve_app.ingress import AdmissionIngress
from tests.serve_configs import entry

OPENED = {"extra_paths": ["/tokenize"]}


def test_every_replica_knows_it() -> None:
    args = {"llm_configs": [entry()], "security": OPENED}
    (config,) = serving_args(args).llm_configs
    told = parse_settings(config.engine_kwargs["additional_config"])
    assert told.security == parse_security(OPENED)
    (plain,) = serving_args({"llm_configs": [entry()]}).llm_configs
    assert parse_settings(plain.engine_kwargs["additional_config"]).security == parse_security(None)


def test_rays_ingress_knows_it_and_so_does_one_derived_from_ours() -> None:
    class Own(AdmissionIngress):
        pass

    for given, taken in ((OpenAiIngress, AdmissionIngress), (Own, Own)):
        ingress = IngressClsConfig(ingress_cls=given, ingress_extra_kwargs={"lora": 1})
        _guard(ingress, parse_security(OPENED))
        assert ingress.ingress_cls is taken
        assert ingress.ingress_extra_kwargs["lora"] == 1
        told = ingress.ingress_extra_kwargs["security"]
        assert parse_security(told) == parse_security(OPENED)


def test_an_ingress_of_somebody_elses_has_no_door() -> None:
    class Theirs(OpenAiIngress):
        pass

    ingress = IngressClsConfig(ingress_cls=Theirs)
    _guard(ingress, parse_security(None))
    assert (ingress.ingress_cls, ingress.ingress_extra_kwargs) == (Theirs, {})
    with pytest.raises(ConfigError, match=r"args.security: has no effect with an ingress_cls of"):
        _guard(ingress, parse_security(OPENED))


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (7, "security: 7 is not allowed"),
        ({"extra_path": []}, "security: unknown key 'extra_path'; did you mean 'extra_paths'?"),
    ],
)
def test_what_is_wrong_with_it_is_named(block: Any, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        serving_args({"llm_configs": [entry()], "security": block})
    assert str(refused.value).startswith(said)
