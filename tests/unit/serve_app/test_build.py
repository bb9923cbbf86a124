"""``build_app`` takes what Ray's own ``build_openai_app`` takes, and names what it does not."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.llm._internal.serve.core.ingress.builder import IngressClsConfig
from ray.llm._internal.serve.core.ingress.ingress import OpenAiIngress
from ray.serve.config import RequestRouterConfig
from ray.serve.llm import LLMConfig, LLMServingArgs

from controller.errors import ConfigError
from controller.validation import join
from replicas.door.settings import parse_security
from serve_app.build import _guard, serving_args
from serve_app.ingress import AdmissionIngress
from tests.serve_configs import entry, put

NAME = "BrimfulServer"
PLAIN = {key: value for key, value in entry().items() if key not in ("batching", "scaling")}


def models(args: Any) -> list[LLMConfig]:
    """What Ray Serve LLM is given."""
    return list(serving_args(args).llm_configs)


@pytest.mark.parametrize("with_file", [True, False])
def test_an_entry_may_be_a_mapping_or_the_path_of_one(with_file: bool, tmp_path: Path) -> None:
    path = tmp_path / "entry.yaml"
    path.write_text(yaml.safe_dump(entry()))
    (config,) = models({"llm_configs": [str(path) if with_file else entry()]})
    assert config.server_cls.__name__ == NAME
    assert config.engine_kwargs["additional_config"]["brimful"]["batching"]["sla"]["itl_ms"] == 50


@pytest.mark.parametrize("whole", [True, False])
def test_rays_own_objects_are_taken(whole: bool) -> None:
    config = LLMConfig.model_validate(PLAIN)
    args = LLMServingArgs(llm_configs=[config]) if whole else {"llm_configs": (config,)}
    (taken,) = models(args)
    assert taken.server_cls.__name__ == NAME
    assert taken.engine_kwargs["additional_config"]["brimful"]["batching"]["policy"] == "adaptive"


@pytest.mark.parametrize("whole", [True, False])
def test_an_object_of_rays_that_was_edited_in_place_keeps_the_edits(whole: bool) -> None:
    config = LLMConfig(model_loading_config={"model_id": "m"})
    config.engine_kwargs["max_model_len"] = 512
    config.deployment_config["num_replicas"] = 3
    config.deployment_config["request_router_config"] = RequestRouterConfig(
        request_router_kwargs={"prefix": 3}
    )
    config.experimental_configs["stream_batching_interval_ms"] = 7
    config.callback_config.callback_kwargs["a"] = 1
    config.model_loading_config.model_source = "org/m"
    (taken,) = models(LLMServingArgs(llm_configs=[config]) if whole else {"llm_configs": [config]})
    assert taken.engine_kwargs["max_model_len"] == 512
    assert taken.deployment_config["num_replicas"] == 3
    router = taken.deployment_config["request_router_config"]
    assert router.request_router_kwargs == {"prefix": 3}
    assert taken.experimental_configs == {"stream_batching_interval_ms": 7}
    assert taken.callback_config.callback_kwargs == {"a": 1}
    assert taken.model_loading_config.model_source == "org/m"


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (None, "args: None is not allowed: a mapping or LLMServingArgs"),
        ([entry()], "args: [{"),
        ({}, "llm_configs: must be a list with at least one model, got None"),
        ({"llm_configs": None}, "llm_configs: must be a list with at least one model, got None"),
        ({"llm_configs": []}, "llm_configs: must be a list with at least one model, got []"),
        ({"llm_configs": entry()}, "llm_configs: must be a list with at least one model, got {"),
        ({"llm_configs": [None]}, "llm_configs[0]: None is not allowed: a mapping, the path"),
        ({"llm_configs": ["/nobody.yaml"]}, "llm_configs[0]: /nobody.yaml: cannot be read: No"),
        ({"llm_confg": []}, "args: unknown key 'llm_confg'; did you mean 'llm_configs'?"),
        ({"llm_config": []}, "args.llm_config: belongs to ray.serve.llm:build_dp_openai_app"),
        (
            {"llm_configs": [{**entry(), "engine_kwarg": {}}]},
            "llm_configs[0]: unknown key 'engine_kwarg'; did you mean 'engine_kwargs'?",
        ),
        ({"llm_configs": [entry(), entry()]}, "args: Value error, Duplicate models found"),
        ({"llm_configs": [entry()], "security": 7}, "security: 7 is not allowed"),
        (
            {"llm_configs": [entry()], "security": {"extra_path": []}},
            "security: unknown key 'extra_path'; did you mean 'extra_paths'?",
        ),
    ],
)
def test_anything_else_is_named(args: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        serving_args(args)
    (line,) = refused.value.problems
    assert line.startswith(problem)


@pytest.mark.parametrize(
    "path", [(), ("deployment_config", "ray_actor_options")], ids=lambda path: ".".join(path)
)
def test_a_variable_that_is_no_text_is_refused_before_anything_is_placed(
    path: tuple[str, ...],
) -> None:
    wrong = put(entry(), (*path, "runtime_env"), {"env_vars": {"OMP_NUM_THREADS": 1}})
    place = join("llm_configs[0]", (*path, "runtime_env", "env_vars", "OMP_NUM_THREADS"))
    with pytest.raises(ConfigError) as raised:
        serving_args({"llm_configs": [wrong]})
    assert raised.value.problems == [f"{place}: 1 is not allowed: must be a string (quote it)"]


# --- the `security` block: to replicas, and to Ray Serve LLM's ingress

OPENED = {"extra_paths": ["/tokenize"]}


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
