"""Memory of one card: weights, vLLM's memory for a step, and the rest for KV cache. Pure."""

from dataclasses import dataclass

from controller.errors import ConfigError
from serve_app.planning.cards import GIB, Card
from serve_app.planning.kv import KvLayout
from serve_app.planning.shape import Attention, ModelShape

# CUDA context, NCCL, CUDA graphs: the rest of 1.3 GiB on the H100 of
# configs/profiles/h100.json (449,952 tokens of KV at 0.9 of 79.1 GiB) after activations.
OUTSIDE_GIB = 0.6
UTILIZATION = 0.92  # vLLM 0.29's own gpu_memory_utilization
LOGIT_BYTES = 8  # float32 logits and their copy in the sampler
MOST_TENSOR_PARALLEL = 8


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


@dataclass(frozen=True, slots=True)
class Budget:
    """One card's memory, bytes.

    Args:
        activations: of the largest step: an MLP's input, both inner matrices and output, or logits.
        outside: memory other than vLLM's tensors.
    """

    total: float
    utilization: float
    weights: WeightBytes
    activations: float
    outside: float

    @property
    def usable(self) -> float:
        return self.total * self.utilization

    @property
    def kv(self) -> float:
        """The rest for the KV cache; negative if the model does not fit."""
        return self.usable - self.weights.total - self.activations - self.outside


def budget(
    shape: ModelShape,
    card: Card,
    tp: int,
    engine: tuple[int, int],
    utilization: float = UTILIZATION,
    reserve_gib: float | None = None,
) -> Budget:
    """The memory of one of ``tp`` cards.

    Args:
        engine: ``max_num_seqs``, ``max_num_batched_tokens``.
        reserve_gib: memory for all but weights and KV; None: activations and ``OUTSIDE_GIB``.
    """
    seqs, tokens = engine
    inner = max(
        (one.mlp.dense + one.mlp.per_token * one.mlp.expert) / shape.hidden for one in shape.layers
    )
    step = tokens * (inner / tp + 2 * shape.hidden) * shape.dtype_bytes
    activations = max(step, seqs * shape.vocab * LOGIT_BYTES)
    outside = OUTSIDE_GIB * GIB
    if reserve_gib is not None:
        activations, outside = 0.0, reserve_gib * GIB
    return Budget(card.memory_gib * GIB, utilization, weight_bytes(shape, tp), activations, outside)


def least_tensor_parallel(
    shape: ModelShape, card: Card, engine: tuple[int, int], utilization: float
) -> int:
    """The fewest cards (a power of two) that leave a fifth of their memory to KV cache.

    If none does, the fewest that hold the weights.

    Raises:
        ConfigError: eight cards do not hold the weights.
    """
    fits = []
    tp = 1
    while tp <= MOST_TENSOR_PARALLEL:
        try:
            check_tensor_parallel(shape, tp)
        except ConfigError:
            break
        left = budget(shape, card, tp, engine, utilization).kv
        if left > 0.2 * card.memory_gib * GIB:
            return tp
        if left > 0:
            fits.append(tp)
        tp *= 2
    if fits:
        return fits[-1]
    raise ConfigError([does_not_fit(shape, card, max(tp // 2, 1), utilization)])


def does_not_fit(shape: ModelShape, card: Card, tp: int, utilization: float) -> str:
    """The line for weights beyond a card's memory."""
    each = weight_bytes(shape, tp).total / GIB
    usable = card.memory_gib * utilization
    return (
        f"model: {shape.name!r} is not allowed on {tp} x {card.accelerator_type}: its weights are"
        f" {each:.1f} GiB a card, and {usable:.1f} GiB can be used; take larger or more cards"
    )


def longest_sequence(layout: KvLayout, kv_bytes: float, most: int, in_flight: int) -> int:
    """Tokens of the longest sequence, at most ``most``, that the KV memory holds; 0: none."""
    blocks = kv_bytes // layout.block_bytes - 1  # vLLM keeps one back
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if layout.blocks(middle, in_flight) <= blocks else (low, middle - 1)
        )
    return low
