"""vLLM's own flags, by its own parser."""

import pytest

from controller.errors import ConfigError
from serve_app.launch.engine_flags import engine_kwargs


def test_names_and_types_are_vllms() -> None:
    flags = "--max-model-len 4k --tensor-parallel-size 2 --dtype bfloat16 --enforce-eager"
    flags += (
        " --no-enable-prefix-caching --gpu_memory_utilization=0.8 --cudagraph-capture-sizes 1 2"
    )
    flags += " --chat-template t.jinja -pp 2"
    assert engine_kwargs(flags.split()) == {
        "max_model_len": 4000,
        "tensor_parallel_size": 2,
        "dtype": "bfloat16",
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "gpu_memory_utilization": 0.8,
        "cudagraph_capture_sizes": [1, 2],
        "chat_template": "t.jinja",
        "pipeline_parallel_size": 2,
    }


def test_what_vllm_makes_objects_of_stays_as_it_was_written() -> None:
    given = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
    assert engine_kwargs(
        [
            *("--kv-transfer-config.kv_connector", "NixlConnector"),
            *("--kv-transfer-config.kv_role", "kv_both"),
            *("--compilation-config", '{"mode": 3}'),
            *("--hf-overrides", '{"a": 1}'),
        ]
    ) == {"kv_transfer_config": given, "compilation_config": {"mode": 3}, "hf_overrides": {"a": 1}}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--max-modle-len 4096", ["--max-modle-len: no flag", "'--max-model-len'"]),
        ("--itl-m 4096", ["--itl-m: no flag", "'--itl-ms'"]),
        ("--dtype bfloat17", ["--dtype", "'bfloat17'", "float16"]),
        ("--tensor-parallel-size two", ["--tensor-parallel-size", "'two'"]),
        ("--max-model-len", ["--max-model-len", "expected one argument"]),
        ("--dtype auto stray", ["stray"]),
        ("--model other", ["--model: the model is the first argument"]),
        ("--served-model-name a b", ["--served-model-name: one name is taken"]),
    ],
)
def test_a_wrong_one_is_named(flags: str, said: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        engine_kwargs(flags.split(), ("--itl-ms",))
    assert all(part in str(refused.value) for part in said), str(refused.value)
