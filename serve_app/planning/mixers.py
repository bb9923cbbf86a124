"""The layers of a config.json: what mixes tokens (attention of some kind, or a state), and what
follows it (a dense MLP, or experts).
"""

from collections.abc import Callable

from serve_app.planning.fields import Fields
from serve_app.planning.shape import Attention, Kind, Layer, Mlp, State

FULL, SLIDING, LINEAR, MAMBA = (
    "full_attention",
    "sliding_attention",
    "linear_attention",
    "mamba",
)
LAYER_TYPES: dict[str, str] = {
    FULL: FULL,
    "attention": FULL,
    "global_attention": FULL,
    SLIDING: SLIDING,
    "local_attention": SLIDING,
    LINEAR: LINEAR,
    MAMBA: MAMBA,
    "mamba2": MAMBA,
}
FLOAT32 = 4
# Two matrices in place of three: no gate.
UNGATED = ("gpt2", "gpt_neox", "opt", "phi", "falcon", "starcoder2", "nemotron", "nemotron_h")


def layers_of(config: Fields, hidden: int, dtype_bytes: int) -> tuple[Layer, ...]:
    """All layers of a model, first to last.

    Raises:
        ConfigError: a key that they need is missing, wrong, or a kind of layer that is not known.
    """
    number = config.size("num_hidden_layers", "n_layer", "num_layers")
    types = _types(config, number)
    makers: dict[str, Callable[[], Attention | State]] = {
        FULL: lambda: _attention(config, hidden, "full", 0),
        SLIDING: lambda: _attention(config, hidden, "sliding", config.size("sliding_window")),
        LINEAR: lambda: _delta_net(config, hidden, dtype_bytes),
        MAMBA: lambda: _mamba2(config, hidden, dtype_bytes),
    }
    made = {kind: makers[kind]() for kind in dict.fromkeys(types)}
    return tuple(Layer(made[kind], mlp_of(config, hidden, n)) for n, kind in enumerate(types))


def _types(config: Fields, number: int) -> list[str]:
    listed = config.texts("layer_types") or config.texts("layers_block_type")
    if listed:
        for one in listed:
            if one not in LAYER_TYPES:
                raise config.wrong("layer_types", one, ", ".join(LAYER_TYPES))
        if len(listed) != number:
            key = "layer_types" if config.data.get("layer_types") else "layers_block_type"
            raise config.wrong(key, f"{len(listed)} layers", f"num_hidden_layers, {number}")
        return [LAYER_TYPES[one] for one in listed]
    attention_at = config.integers("attn_layer_indices")
    if attention_at:
        return [FULL if n in attention_at else MAMBA for n in range(number)]
    every = config.integer("full_attention_interval", default=0)
    if every:
        return [FULL if (n + 1) % every == 0 else LINEAR for n in range(number)]
    return _windows(config, number)


def _windows(config: Fields, number: int) -> list[str]:
    """Which layers have a window: all, or all but one of each pattern, or none."""
    if not config.integer("sliding_window", default=0):
        return [FULL] * number
    if not config.flag("use_sliding_window", default=True):
        return [FULL] * number
    pattern = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=0)
    if not pattern and config.text("model_type").startswith("gemma"):
        pattern = 6 if config.text("model_type").startswith("gemma3") else 2
    if pattern > 1:
        return [FULL if (n + 1) % pattern == 0 else SLIDING for n in range(number)]
    return [SLIDING] * number


def _attention(config: Fields, hidden: int, kind: Kind, window: int) -> Attention:
    heads = config.size("num_attention_heads", "n_head")
    if config.integer("kv_lora_rank", default=0):
        return _latent(config, hidden, heads)
    kv_heads = config.size("num_key_value_heads", "num_kv_heads", default=heads)
    if heads % kv_heads:
        raise config.wrong("num_key_value_heads", kv_heads, f"a divisor of {heads} heads")
    if config.data.get("head_dim") is None and hidden % heads:
        raise config.wrong("num_attention_heads", heads, f"a divisor of hidden_size {hidden}")
    dim = config.size("head_dim", default=max(hidden // heads, 1))
    queries = heads * dim * (2 if config.flag("attn_output_gate", _gated(config)) else 1)
    params = hidden * (queries + 2 * kv_heads * dim) + heads * dim * hidden
    if config.flag("attention_bias"):
        params += queries + 2 * kv_heads * dim + hidden
    return Attention(kind, heads, kv_heads, dim, dim, params, window)


def _gated(config: Fields) -> bool:
    """Whether queries have a gate of their size; Qwen3-Next's config does not say so."""
    return config.text("model_type") in ("qwen3_next", "qwen3_5", "qwen3_5_moe")


def _latent(config: Fields, hidden: int, heads: int) -> Attention:
    """MLA (arXiv 2405.04434): one latent vector and one rotary key a token, for all heads."""
    latent, rope = config.size("kv_lora_rank"), config.size("qk_rope_head_dim")
    nope, value = config.size("qk_nope_head_dim"), config.size("v_head_dim")
    query_rank = config.integer("q_lora_rank", default=0)
    down = hidden * (latent + rope) + latent
    if query_rank:
        down += hidden * query_rank + query_rank
        queries = query_rank * heads * (nope + rope)
    else:
        queries = hidden * heads * (nope + rope)
    params = queries + latent * heads * (nope + value) + heads * value * hidden
    return Attention("latent", heads, 1, latent + rope, value, params, replicated=down)


def _delta_net(config: Fields, hidden: int, dtype_bytes: int) -> State:
    """Gated delta net (Qwen3-Next): shapes of vLLM's ``gated_delta_net_state_shape``."""
    keys = config.size("linear_num_key_heads") * config.size("linear_key_head_dim")
    heads, dim = config.size("linear_num_value_heads"), config.size("linear_value_head_dim")
    kernel = config.size("linear_conv_kernel_dim")
    width = 2 * keys + heads * dim
    params = hidden * (width + heads * dim + 2 * heads) + width * kernel + heads * dim * hidden
    recurrent = heads * config.size("linear_key_head_dim") * dim
    return State(
        width * (kernel - 1), recurrent, dtype_bytes, _state_bytes(config, dtype_bytes), params
    )


def _mamba2(config: Fields, hidden: int, dtype_bytes: int) -> State:
    """Mamba 2: shapes of vLLM's ``mamba2_state_shape``."""
    heads = config.size("mamba_n_heads", "mamba_num_heads")
    dim = config.size("mamba_d_head", "mamba_head_dim")
    state, groups = (
        config.size("mamba_d_state", "ssm_state_size"),
        config.size("mamba_n_groups", "n_groups", default=1),
    )
    kernel = config.size("mamba_d_conv", "conv_kernel", default=4)
    inner = heads * dim
    width = inner + 2 * groups * state
    params = hidden * (inner + width + heads) + width * kernel + inner * hidden
    return State(
        width * (kernel - 1), inner * state, dtype_bytes, _state_bytes(config, dtype_bytes), params
    )


def _state_bytes(config: Fields, dtype_bytes: int) -> int:
    return FLOAT32 if config.text("mamba_ssm_dtype") == "float32" else dtype_bytes


def mlp_of(config: Fields, hidden: int, layer: int) -> Mlp:
    """The MLP of one layer, with experts if it has them.

    Raises:
        ConfigError: a key that it needs is missing or wrong.
    """
    matrices = 2 if config.text("model_type") in UNGATED else 3
    experts = config.integer(
        "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", default=0
    )
    if not experts or not _has_experts(config, layer):
        inner = config.size("intermediate_size", "n_inner", "ffn_dim", default=4 * hidden)
        return Mlp(matrices * hidden * inner)
    inner = config.size("moe_intermediate_size", "intermediate_size")
    per_token = config.size("num_experts_per_tok", "moe_topk", "num_experts_per_token")
    if per_token > experts:
        raise config.wrong("num_experts_per_tok", per_token, f"at most {experts} experts")
    shared = config.integer("n_shared_experts", default=0) * inner
    shared = config.integer("shared_expert_intermediate_size", "shared_intermediate_size",
                            default=shared)  # fmt: skip
    expert = matrices * hidden * inner
    if config.text("model_type") == "gpt_oss":  # experts have biases
        expert += 2 * inner + hidden
    return Mlp(matrices * hidden * shared, experts, per_token, expert, experts * hidden)


def _has_experts(config: Fields, layer: int) -> bool:
    if layer < config.integer("first_k_dense_replace", default=0):
        return False
    if layer in config.integers("mlp_only_layers"):
        return False
    step = config.integer("decoder_sparse_step", "interleave_moe_layer_step", default=1)
    return step < 2 or (layer + 1) % step == 0
