"""Step times from a card's datasheet, if there are no measurements. Pure.

T = host + layers x launch + dense(n) + all-reduce(n) + K KV bytes / bandwidth + X flops / rate,
for n tokens in a step; dense(n) joins the time to read the weights that n tokens touch and the time
to multiply with them as (a^p + b^p)^(1/p), since a real step is at neither bound if both are
close.

The constants are a least-squares fit (of log T) to the measured tables of configs/profiles
(vidur.json, h100.json); ``DEVIATIONS`` says how far off they are for each.
"""

from dataclasses import dataclass, field

from replicas.profiles.profile import StepProfile, TableCost
from replicas.profiles.profile_file import HBM_EFFICIENCY, PREFILL_EFFICIENCY
from serve_app.planning.cards import Card
from serve_app.planning.kv import read_bytes
from serve_app.planning.memory import weight_bytes
from serve_app.planning.shape import ModelShape, layer_active

WEIGHT_EFFICIENCY = 0.70  # of the bandwidth, reading weights
FLOPS_EFFICIENCY = 0.65  # of the dense rate, multiplying with them
JOIN = 1.5  # p
HOST_S = 0.001  # a step
LAUNCH_S = 20e-6  # a layer
ALL_REDUCE_S = 30e-6  # of one, two a layer, before its bytes
LINK_EFFICIENCY = 0.67  # of one direction of the link
# By profile: root mean square of the logarithm, and mean, of the roofline over the measured table.
DEVIATIONS = {
    "h100-llama-8b-vllm": (0.214, 0.175),
    "h100-Llama-2-7b-hf-tp1": (0.134, -0.107),
    "h100-Llama-2-70b-hf-tp4": (0.068, 0.014),
    "a100-Llama-2-7b-hf-tp1": (0.071, -0.015),
    "a100-Meta-Llama-3-8B-tp1": (0.049, -0.007),
}


@dataclass(frozen=True, slots=True)
class RooflineCost:
    """``StepCost`` of a model on ``tp`` cards.

    Args:
        held: tokens of a typical sequence; a window reads only a part.
        kv_bytes: of a cached element.
    """

    shape: ModelShape
    card: Card
    tp: int
    held: float
    kv_bytes: int
    per_kv_s: float = field(init=False)
    per_context_s: float = field(init=False)

    def __post_init__(self) -> None:
        bandwidth = HBM_EFFICIENCY * self.card.hbm_gb_per_s * 1e9
        read = read_bytes(self.shape, self.held, self.tp, self.kv_bytes) / self.held
        flops = sum(
            one.flops_per_context * min(self.held, one.window or self.held) / self.held
            for one in self.shape.attentions
        )
        rate = PREFILL_EFFICIENCY * self.card.bf16_tflops * 1e12 * self.tp
        object.__setattr__(self, "per_kv_s", read / bandwidth)
        object.__setattr__(self, "per_context_s", flops / rate)

    def step_s(self, decodes: float, kv: float, prefill: float, context: float) -> float:
        """Seconds of a step."""
        dense_s = self.dense_s(decodes + prefill)
        return dense_s + self.per_kv_s * kv + self.per_context_s * context

    def dense_s(self, tokens: float) -> float:
        """Seconds of everything but attention to the cache, for so many tokens."""
        read_s, multiply_s = self.read_s(tokens), self.multiply_s(tokens)
        joined = (read_s**JOIN + multiply_s**JOIN) ** (1 / JOIN)
        layers = len(self.shape.layers)
        return HOST_S + layers * LAUNCH_S + joined + self.all_reduce_s(tokens)

    def read_s(self, tokens: float) -> float:
        """Seconds to read the weights that so many tokens touch."""
        whole = weight_bytes(self.shape, self.tp)
        sizes = [(one.mlp.touched(tokens), one.mlp.experts) for one in self.shape.layers]
        experts = sum(every for _, every in sizes)
        share = sum(touched for touched, _ in sizes) / experts if experts else 0.0
        embedding = 0.0 if self.shape.tied else whole.embeddings / 2  # its rows are looked up
        read = whole.total - embedding - whole.experts * (1 - share)
        return read / (WEIGHT_EFFICIENCY * self.card.hbm_gb_per_s * 1e9)

    def multiply_s(self, tokens: float) -> float:
        """Seconds of 2 flops a token and parameter."""
        eight = self.shape.quantization.eight_bit_math and self.card.fp8_tflops
        rate = (eight or self.card.bf16_tflops) * 1e12 * FLOPS_EFFICIENCY * self.tp
        return 2 * tokens * sum(layer_active(one) for one in self.shape.layers) / rate

    def all_reduce_s(self, tokens: float) -> float:
        """Seconds of two all-reduces a layer over a ring of ``tp`` cards."""
        if self.tp == 1:
            return 0.0
        sent = 2 * (self.tp - 1) / self.tp * tokens * self.shape.hidden * self.shape.dtype_bytes
        link = LINK_EFFICIENCY * self.card.link_gb_per_s * 1e9
        return 2 * len(self.shape.layers) * (ALL_REDUCE_S + sent / link)


TOKENS = (1, *(2 * 2**n + half * 2**n for n in range(13) for half in (0, 1)))  # 1 to 12,288


def roofline_profile(
    name: str, cost: RooflineCost, kv_tokens: int, engine: tuple[int, int]
) -> StepProfile:
    """As a table, which is fast to read in the replay and in fluid arithmetic."""
    table = TableCost(TOKENS, tuple(map(cost.dense_s, TOKENS)), cost.per_kv_s, cost.per_context_s)
    source = "roofline: configs/gpus.json, efficiencies fitted to configs/profiles"
    return StepProfile(name, source, kv_tokens, *engine, table)
