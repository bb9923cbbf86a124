"""Bytes of a model's weights on one of ``tp`` cards. Pure."""

from dataclasses import dataclass

from controller.errors import ConfigError
from serve_app.planning.shape import Attention, ModelShape


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """On one card.

    Args:
        other: norms, routers, encoders: complete on every card.
    """

    embeddings: float
    mixers: float
    dense: float
    experts: float
    other: float

    @property
    def total(self) -> float:
        return self.embeddings + self.mixers + self.dense + self.experts + self.other


def check_tensor_parallel(shape: ModelShape, tp: int) -> None:
    """Refuse numbers of heads that vLLM cannot divide.

    Raises:
        ConfigError: naming the number of heads.
    """
    for one in shape.attentions:
        few = one.kind != "latent" and one.kv_heads % tp and tp % one.kv_heads
        if one.heads % tp or few:
            heads = f"{one.heads} attention heads and {one.kv_heads} KV heads of {shape.name}"
            raise ConfigError([f"--tensor-parallel: {tp} is not allowed: it has to divide {heads}"])


def weight_bytes(shape: ModelShape, tp: int = 1) -> WeightBytes:
    """Linear layers are divided, KV heads copied if there are fewer than cards."""
    plain, quantized = shape.dtype_bytes, shape.quantization
    linear = quantized.linear_bits / 8 or plain
    expert = quantized.expert_bits / 8 or plain
    mixer = linear if quantized.attention else plain
    mixers = replicated = 0.0
    for one in shape.layers:
        mixers += one.mixer.params * mixer / tp
        if isinstance(one.mixer, Attention):
            mixers += one.mixer.replicated * mixer
            mixers += _copied(one.mixer, shape.hidden, tp) * mixer
        replicated += one.mlp.router * plain
    return WeightBytes(
        embeddings=shape.embedding * plain * (1 if shape.tied else 2) / tp,
        mixers=mixers,
        dense=sum(one.mlp.dense for one in shape.layers) * linear / tp,
        experts=sum(one.mlp.experts * one.mlp.expert for one in shape.layers) * expert / tp,
        other=replicated + (shape.norms + shape.extra_params) * plain,
    )


def _copied(mixer: Attention, hidden: int, tp: int) -> float:
    """Parameters of KV heads that a card holds beyond its share."""
    if mixer.kind == "latent" or mixer.kv_heads >= tp:
        return 0.0
    share = mixer.kv_heads * (mixer.head_dim + mixer.value_dim) * hidden
    return share / mixer.kv_heads - share / tp
