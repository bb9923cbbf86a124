"""The shape of a model, layer by layer, for its memory and its work. Pure.

Sizes are elements (parameters, cached values); bytes come from ``weights`` and ``kv``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from serve_app.planning.quantization import Quantization

Kind = Literal["full", "sliding", "latent"]


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention of a layer.

    Args:
        kind: ``latent`` is MLA: one vector a token for all heads, of ``head_dim`` elements.
        window: tokens that a sliding layer attends to; 0: all.
        params: of the projections that tensor parallelism divides.
        replicated: parameters that every rank holds (MLA's down-projections, norms).
    """

    kind: Kind
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    params: int
    window: int = 0
    replicated: int = 0

    @property
    def flops_per_context(self) -> int:
        """Operations for a query token and a key: multiply and add, in QK^T and in AV."""
        return 2 * self.heads * (self.head_dim + self.value_dim)

    def kv_elements(self, tp: int) -> int:
        """Cached elements a token on one of ``tp`` ranks; too few heads are copied."""
        if self.kind == "latent":
            return self.head_dim
        return max(self.kv_heads // tp, 1) * (self.head_dim + self.value_dim)


@dataclass(frozen=True, slots=True)
class State:
    """A layer with a state per sequence in place of keys and values: Mamba 2, gated delta net.

    Args:
        conv, recurrent: elements of the two parts of the state, all ranks together; their bytes
            are of one element.
    """

    conv: int
    recurrent: int
    conv_bytes: int
    recurrent_bytes: int
    params: int


@dataclass(frozen=True, slots=True)
class Mlp:
    """The part after attention: dense, or experts of which a token uses some.

    Args:
        dense: parameters that every token uses, shared experts included.
        expert: of one expert.
        router: replicated, never quantized.
    """

    dense: int
    experts: int = 0
    per_token: int = 0
    expert: int = 0
    router: int = 0

    def touched(self, tokens: float) -> float:
        """Experts that a step of so many tokens reads, each token's drawn evenly on its own."""
        if not self.experts:
            return 0.0
        return self.experts * (1 - (1 - self.per_token / self.experts) ** tokens)


@dataclass(frozen=True, slots=True)
class Layer:
    mixer: Attention | State
    mlp: Mlp


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model.

    Args:
        tied: the output layer is the embedding.
        extra_params: of encoders of a language model; kept in ``dtype_bytes``.
        kv_bits: of a KV cache quantized by the checkpoint itself; 0: it is not.
    """

    name: str
    architecture: str
    hidden: int
    vocab: int
    max_len: int
    tied: bool
    dtype: str
    dtype_bytes: int
    layers: tuple[Layer, ...]
    quantization: Quantization
    extra_params: int = 0
    kv_bits: int = 0

    @property
    def attentions(self) -> Iterator[Attention]:
        return (one.mixer for one in self.layers if isinstance(one.mixer, Attention))

    @property
    def states(self) -> Iterator[State]:
        return (one.mixer for one in self.layers if isinstance(one.mixer, State))

    @property
    def embedding(self) -> int:
        return self.vocab * self.hidden

    @property
    def norms(self) -> int:
        return (2 * len(self.layers) + 1) * self.hidden

    @property
    def params(self) -> int:
        """All parameters."""
        per_layer = sum(
            _mixer(one.mixer) + one.mlp.dense + one.mlp.router + one.mlp.experts * one.mlp.expert
            for one in self.layers
        )
        heads = self.embedding * (1 if self.tied else 2)
        return per_layer + heads + self.norms + self.extra_params

    @property
    def active_params(self) -> int:
        """Parameters that a token is multiplied with: not the embedding or other experts."""
        return self.embedding + sum(layer_active(one) for one in self.layers)


def layer_active(layer: Layer) -> int:
    """Parameters of a layer that a token is multiplied with."""
    mlp = layer.mlp
    return _mixer(layer.mixer) + mlp.dense + mlp.router + mlp.per_token * mlp.expert


def _mixer(mixer: Attention | State) -> int:
    return mixer.params + (mixer.replicated if isinstance(mixer, Attention) else 0)
