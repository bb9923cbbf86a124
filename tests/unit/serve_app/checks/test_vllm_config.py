"""What vLLM itself has against a model that is at hand, said before anything starts."""

import json
import traceback
from pathlib import Path

import pytest
from ray.llm._internal.serve.core.configs.llm_config import LLMConfig
from ray.llm._internal.serve.engines.vllm.vllm_engine import _get_vllm_engine_config

from serve_app.checks.findings import Target
from serve_app.checks.vllm_config import LONGEST, sentence
from serve_app.launch.command import reason
from serve_app.launch.phases import Phases
from tests.serve_configs import LLAMA, PLACE, having

CPU, GPU = {"kind": "cpu"}, {"kind": "gpu"}
DRAFT = {"model": "/no/draft", "num_speculative_tokens": 2}
# Keys of config.json, engine_kwargs, and what vLLM says of them.
REFUSED = [
    ({}, {"max_model_len": 200_000}, "User-specified max_model_len (200000) is greater than the"),
    ({}, {"tensor_parallel_size": 2}, "attention heads (3) must be divisible by tensor parallel"),
    ({}, {"speculative_config": DRAFT}, "Invalid repository ID or local directory specified: '/no"),
    ({"architectures": ["NoForCausalLM"]}, {}, "Model architectures ['NoForCausalLM'] are not sup"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    return tmp_path


def entry(folder, engine, kind=CPU, **keys):
    (folder / "config.json").write_text(json.dumps({**LLAMA, **keys}))
    data = having("model_loading_config.model_source", str(folder))
    data = having("accelerator_config", kind, having("batching.max_running", {}, data))
    return having("engine_kwargs", engine, data)


@pytest.mark.parametrize(("keys", "engine", "says"), REFUSED, ids=str)
def test_vllms_own_sentence_is_said_by_a_check(check, folder, keys, engine, says):
    (problem,) = check(entry(folder, engine, CPU, **keys)).problems
    assert problem.startswith(PLACE)
    assert says in problem
    assert "pydantic" not in problem and len(problem) < LONGEST + 200


@pytest.mark.parametrize(("keys", "engine", "says"), REFUSED, ids=str)
def test_it_is_said_of_a_start_that_failed(folder, keys, engine, says):
    given = entry(folder, engine, **keys)["applications"][0]["args"]["llm_configs"][0]
    names = ("model_loading_config", "engine_kwargs", "accelerator_config")
    config = LLMConfig.model_validate({name: given[name] for name in names})
    try:
        _get_vllm_engine_config(config)
    except RuntimeError:
        failure = f"application llm:\nThe deployment failed to start.\n{traceback.format_exc()}"
    head, why, more = reason(failure, Phases(folder)).splitlines()
    assert head == "application llm: a replica failed to start"
    assert says in why and "pydantic" not in why
    assert more.startswith("more in ")


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        ({"max_model_len": 2048}, CPU),
        ({"speculative_config": {**DRAFT, "model": "org/draft"}}, CPU),
        ({"trust_remote_code": True, "max_model_len": 200_000}, CPU),
        ({"max_model_len": 200_000}, GPU),  # which this machine has not
    ],
    ids=str,
)
def test_what_only_this_machine_lacks_is_no_fault(check, folder, engine, kind):
    data = having("/args.security", {"trust_remote_code": ["m"]}, entry(folder, engine, kind))
    assert check(data).problems == []


def test_a_replicas_own_variables_count(check, folder):
    data = entry(folder, {"max_model_len": 200_000})
    variables = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
    assert check(having("runtime_env.env_vars", variables, data)).problems == []


def test_a_model_elsewhere_is_not_asked_about(check, folder):
    data = entry(folder, {"max_model_len": 200_000})
    assert check(data, Target(env={}, local_paths=False)).problems == []
    assert check(having("model_loading_config.model_source", "org/m", data)).problems == []


def test_a_place_and_several_errors_are_kept():
    text = (
        "2 validation errors for CacheConfig\nblock_size\n  Input should be 1 [type=literal_error,"
        " input_value=3, input_type=int]\n    For further information visit https://x\n"
        "  Value error, No\nmemory. [type=value_error, input_value=1, input_type=int]\n"
    )
    assert sentence(text) == "block_size: Input should be 1; No memory."
