"""Shapes from a config.json: the published ones, kinds of layers, and what is wrong with one."""

from typing import Any

import pytest

from controller.data_file import read_json
from controller.errors import ConfigError
from serve_app.planning.fields import Fields
from serve_app.planning.memory import weight_bytes
from serve_app.planning.model_config import NamedModel, load_model, named_models, read_shape
from serve_app.planning.shape import ModelShape

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "torch_dtype": "bfloat16",
}
GIB = 2**30


def shape(**changes: Any) -> ModelShape:
    config = {key: value for key, value in {**LLAMA, **changes}.items() if value is not None}
    return read_shape(Fields(config, "config.json"), "a")


def bits_per_weight(**quantization: Any) -> float:
    """Parameters of an MLP."""
    made = shape(quantization_config=quantization)
    return weight_bytes(made).dense * 8 / (8 * 3 * 1024 * 4096)


@pytest.mark.parametrize("name", named_models())
def test_parameters_are_the_published_ones(name: str) -> None:
    named = read_json(named_models()[name], NamedModel)
    assert load_model(name).params == pytest.approx(named.parameters, rel=0.01)


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("gpt-oss-20b", 12.8),  # arXiv 2508.10925, table 1: checkpoint
        ("deepseek-v3", 671.0e9 / GIB),  # fp8, a byte a parameter
        ("llama-3.1-8b", 2 * 8.03e9 / GIB),
    ],
)
def test_weights_are_as_large_as_published(name: str, gib: float) -> None:
    assert weight_bytes(load_model(name)).total / GIB == pytest.approx(gib, rel=0.01)


@pytest.mark.parametrize(
    ("name", "billions"), [("deepseek-v3", 37), ("gpt-oss-20b", 3.61), ("qwen3-30b-a3b", 3.3)]
)
def test_a_token_is_multiplied_with_the_published_parameters(name: str, billions: float) -> None:
    made = load_model(name)
    counted = made.active_params + (0 if name == "gpt-oss-20b" else made.embedding)
    assert counted / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 128**2),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
            },
            4.5,
        ),
    ],
)
def test_bits_of_a_weight(quantization: dict[str, Any], bits: float) -> None:
    assert bits_per_weight(**quantization) == pytest.approx(bits)


def test_cards_divide_the_weights_and_copy_kv_heads_there_are_too_few_of() -> None:
    one, sixteen = weight_bytes(shape()), weight_bytes(shape(), 16)
    kv = 8 * 2 * 64 * 1024 * 2  # K and V of a head, all layers, bytes
    assert sixteen.dense == one.dense / 16
    assert sixteen.mixers == pytest.approx(one.mixers / 16 + kv * (1 - 4 / 16))


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"sliding_window": 512}, [512] * 8),
        ({"sliding_window": 512, "use_sliding_window": False}, [0] * 8),
        ({"sliding_window": 512, "sliding_window_pattern": 4}, [512, 512, 512, 0] * 2),
        (
            {"sliding_window": 512, "layer_types": ["sliding_attention", "full_attention"] * 4},
            [512, 0] * 4,
        ),
    ],
)
def test_which_layers_have_a_window(changes: dict[str, Any], windows: list[int]) -> None:
    assert [one.window for one in shape(**changes).attentions] == windows


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hidden_size": None}, "hidden_size or n_embd or d_model: required key is missing"),
        ({"vocab_size": "many"}, "vocab_size: 'many' is not allowed: a whole number from 0"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: 0 is not allowed: a whole number from 1"),
        ({"num_key_value_heads": 5}, "num_key_value_heads: 5 is not allowed: a divisor of 16"),
        ({"torch_dtype": "int3"}, "torch_dtype: 'int3' is not allowed: bfloat16"),
        ({"layer_types": ["odd"] * 8}, "layer_types: 'odd' is not allowed: full_attention"),
        ({"layer_types": ["full_attention"]}, "layer_types: '1 layers' is not allowed"),
        ({"quantization_config": {"quant_method": "q9"}}, "quant_method: 'q9' is not allowed: fp8"),
        ({"num_experts": 4}, "num_experts_per_tok or moe_topk"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: ") as raised:
        shape(**changes)
    assert told in str(raised.value)


@pytest.mark.parametrize("changes", [
    {"model_type": "jamba", "attn_layer_period": 8},
    {"model_type": "falcon", "multi_query": True},
    {"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*"},
    {"model_type": "deepseek_v32", "index_topk": 2048},
    {"model_type": "bert"},
    {"model_type": None},
])  # fmt: skip
def test_layers_that_are_not_understood_are_an_error_and_no_figure(changes: dict[str, Any]) -> None:
    """All have the keys of a plain transformer, too; jamba's KV memory came out eightfold."""
    with pytest.raises(ConfigError, match=r"model_type: .* is not allowed: known are cohere"):
        shape(**changes)


CHANNELS = {"weights": {"num_bits": 8, "type": "float"}}
GROUPS = {"weights": {"num_bits": 4, "group_size": 128}}


@pytest.mark.parametrize(
    ("quantization", "told"),
    [
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "two whole numbers from 1"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*attn": {}}}, "dynamic: "),
        ({"quant_method": "modelopt"}, "quant_algo: None is not allowed: FP8 or NVFP4"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": GROUPS, "group_1": CHANNELS},
            },
            "groups of the same bits",
        ),
    ],
)
def test_weights_whose_bits_cannot_be_told_are_an_error(
    quantization: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        shape(quantization_config=quantization)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct@main", "llama-3.1-8b"),
        ("Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("google/gemma-3-27b-pt", "gemma-3-27b"),
        ("mistralai/Mistral-Small-24B-Base-2501", "mistral-small-24b"),
    ],
)
def test_the_hubs_name_of_a_known_model_is_taken(spec: str, name: str) -> None:
    assert load_model(spec) == load_model(name)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        # Of another length, or of somebody else.
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "did you mean|allowed"),
        ("acme/Llama-3.1-8B", "unknown key"),
        ("nope", "unknown key 'nope'"),
        ("/nowhere/config.json", "no such file or folder"),
        ("llama-3.1-8c", "did you mean 'llama-3.1-8b'"),
    ],
)
def test_a_model_that_is_not_there(spec: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_model(spec)
