"""The planner's KV memory and parameters, against vLLM's own model classes and allocator."""

import pytest
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as MODELS,
)
from vllm.v1.kv_cache_interface import AttentionSpec

from controller.data_file import read_json
from serve_app.planning.fields import Fields
from serve_app.planning.kv import KvLayout, kv_layout
from serve_app.planning.model_config import (
    FAMILIES,
    NamedModel,
    load_model,
    named_models,
    read_shape,
)
from tests.vllm.serve_app.meta_models import MetaModel, meta_model

MEMORY = 80 * 2**30
ARCHITECTURES = (
    "llama-3.1-8b",
    "llama-3.1-70b",
    "qwen3-30b-a3b",
    "deepseek-v3",
    "gemma-3-27b",
    "gpt-oss-20b",
    "mistral-small-24b",
    "smollm2-135m",
    "qwen3-next-80b-a3b",
)
EXACT = 0.01
# One of each kind of layer; all of them with ``--families``.
SOME = frozenset(
    (
        "cohere2",
        "deepseek_v2",
        "gemma3_text",
        "glm4_moe",
        "gpt_neox",
        "granitemoehybrid",
        "qwen2_moe",
        "starcoder2",
    )
)
UNKNOWN = frozenset(("kimi_k2", "qwen3_next", "internlm3"))  # to transformers
MORE: dict[str, dict[str, object]] = {  # what transformers has no default for
    "deepseek_v2": {
        "n_routed_experts": 16,
        "num_experts_per_tok": 6,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
    },
    "glm4_moe": {"head_dim": 128},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 4},
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "family" in metafunc.fixturenames:
        every = metafunc.config.getoption("families")
        metafunc.parametrize("family", sorted(FAMILIES - UNKNOWN if every else SOME))


@pytest.fixture(params=ARCHITECTURES, scope="module")
def pair(request: pytest.FixtureRequest) -> tuple[str, MetaModel]:
    named = read_json(named_models()[request.param], NamedModel)
    return request.param, meta_model(named.config, max_num_batched_tokens=4096)


def ours(name: str, theirs: MetaModel) -> KvLayout:
    config = dict(read_json(named_models()[name], NamedModel).config)
    config["mamba_ssm_dtype"] = theirs.config.cache_config.mamba_ssm_cache_dtype  # float32 on CPUs
    shape = read_shape(Fields(config, name), name)
    return kv_layout(shape, block_size=theirs.config.cache_config.block_size)


def test_every_family_that_is_planned_is_as_vllm_makes_it(family: str) -> None:
    """Eight layers of what transformers has as its default."""
    config = AutoConfig.for_model(family).to_dict()
    config["num_hidden_layers"] = 8
    for key in ("layer_types", "layers_block_type", "mlp_layer_types"):
        if config.get(key):
            config[key] = config[key][:8]
    config |= {"torch_dtype": "bfloat16", "architectures": [MODELS[family]]} | MORE.get(family, {})
    config = {key: value for key, value in config.items() if value is not None}
    theirs = meta_model(config, max_num_batched_tokens=4096, max_model_len=2048)
    del config["tie_word_embeddings"]  # as config.json leaves out what is the default
    shape = read_shape(Fields(config, family), family)
    assert shape.params == pytest.approx(theirs.parameters, rel=EXACT)
    attention = [one for one in theirs.specs.values() if isinstance(one, AttentionSpec)]
    windows = sorted(getattr(one, "sliding_window", None) or 0 for one in attention)
    token_bytes = sum(one.page_size_bytes // one.block_size for one in attention)
    planned = sorted(one.window for one in shape.attentions)
    assert planned == pytest.approx(
        windows, abs=1
    )  # cohere2 counts the token itself in addition to its 4,096
    assert sum(one.kv_elements(1) for one in shape.attentions) * 2 == token_bytes


def test_blocks_and_groups_are_vllms(pair: tuple[str, MetaModel]) -> None:
    name, theirs = pair
    layout, kv = ours(name, theirs), theirs.kv(MEMORY)
    assert MEMORY // layout.block_bytes == pytest.approx(kv.num_blocks, rel=EXACT)
    assert sorted(one.layers for one in layout.groups) == sorted(
        len(group.layer_names) for group in kv.kv_cache_groups
    )


@pytest.mark.parametrize("max_len", [2048, 8192])
def test_kv_capacity_is_vllms(pair: tuple[str, MetaModel], max_len: int) -> None:
    name, theirs = pair
    theirs.config.model_config.max_model_len = max_len
    tokens, _ = theirs.capacity(MEMORY)
    in_flight = theirs.config.max_in_flight_tokens
    assert ours(name, theirs).capacity_tokens(MEMORY, max_len, in_flight) == pytest.approx(
        tokens, rel=EXACT
    )


def test_parameters_are_vllms(pair: tuple[str, MetaModel]) -> None:
    name, theirs = pair
    shape = load_model(name)
    assert shape.params - shape.extra_params == pytest.approx(theirs.parameters, rel=EXACT)


def test_a_quantized_cache_is_vllms() -> None:
    named = read_json(named_models()["llama-3.1-8b"], NamedModel)
    theirs = meta_model(named.config, kv_cache_dtype="fp8", max_num_batched_tokens=4096)
    layout = kv_layout(
        load_model("llama-3.1-8b"),
        kv_dtype="fp8",
        block_size=theirs.config.cache_config.block_size,
    )
    assert MEMORY // layout.block_bytes == pytest.approx(theirs.kv(MEMORY).num_blocks, rel=EXACT)
