"""The part after attention in each layer of a config.json: a dense MLP, or experts."""

from serve_app.planning.fields import Fields
from serve_app.planning.shape import Mlp

# Two matrices in place of three: no gate.
UNGATED = ("gpt2", "gpt_neox", "opt", "phi", "falcon", "starcoder2", "nemotron", "nemotron_h")


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
