"""The KV cache as vLLM lays it out: blocks, groups of layers, memory of a sequence. Pure.

vLLM 0.29 (``v1/core/kv_cache_utils.py``) has one pool of blocks for all layers. Layers of one kind
are one group; if there are several kinds, all groups get as many layers as the smallest kind has
(or the largest, if it is below 1.5 times that), the last group of a kind is padded, and blocks of
all groups are equally large. In each group a sequence takes a block for every ``block_size``
tokens; with a sliding window no more than the window; of a state two.
"""

import math
from collections import Counter
from dataclasses import dataclass

from controller.errors import ConfigError
from controller.validation import unknown_key
from serve_app.planning.shape import Attention, ModelShape, State

KV_BYTES = {
    "auto": 0,
    "bfloat16": 2,
    "float16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
}
STATES = (
    2  # states per sequence: with prefix caching (vLLM's default) the one at the last block stays
)
BLOCK_SIZE = 16  # tokens; vLLM's own on a GPU
PADDED_BELOW = 1.5  # of the largest kind over the smallest: padded to the largest


@dataclass(frozen=True, slots=True)
class Group:
    """Layers with one block table.

    Args:
        kind: full, sliding, latent or state.
        block_size: tokens of a block of theirs; of a state, all.
    """

    kind: str
    window: int
    layers: int
    block_size: int

    def blocks(self, tokens: float, in_flight: int = 0) -> float:
        """Blocks that a sequence of so many tokens takes.

        Args:
            in_flight: tokens scheduled and not yet settled, for which vLLM keeps the window longer.
        """
        if self.kind == "state":
            return STATES
        if not self.window:
            return math.ceil(tokens / self.block_size)
        most = math.ceil(min(self.window + in_flight - 1, tokens) / self.block_size) + 1
        return most if in_flight else min(most, math.ceil(tokens / self.block_size))


@dataclass(frozen=True, slots=True)
class KvLayout:
    """How one card's KV memory is divided.

    Args:
        block_bytes: of a block, all layers of the largest group.
        token_bytes: bytes that a token adds to a sequence beyond every window, without padding.
        state_bytes: of the states of a sequence.
    """

    groups: tuple[Group, ...]
    block_bytes: int
    token_bytes: int
    state_bytes: int
    kv_bytes: int

    def blocks(self, tokens: float, in_flight: int = 0) -> float:
        """Blocks of a sequence of so many tokens."""
        return sum(group.blocks(tokens, in_flight) for group in self.groups)

    def sequences(self, memory_bytes: float, tokens: float) -> float:
        """How many sequences of so many tokens fit; their last blocks are half full on average."""
        blocks = memory_bytes // self.block_bytes
        held = sum(
            STATES
            if one.kind == "state"
            else min(tokens / one.block_size + 0.5, one.blocks(tokens))
            for one in self.groups
        )
        return blocks / held

    def capacity_tokens(self, memory_bytes: float, max_len: int, in_flight: int) -> int:
        """The value that vLLM logs as "GPU KV cache size": tokens of sequences of ``max_len``."""
        blocks = memory_bytes // self.block_bytes
        return int(blocks / self.blocks(max_len, in_flight) * max_len)


def cache_bytes(shape: ModelShape, kv_dtype: str) -> int:
    """Bytes of a cached element.

    Raises:
        ConfigError: a dtype that is not known here.
    """
    if kv_dtype not in KV_BYTES:
        raise ConfigError([unknown_key("--kv-cache-dtype", kv_dtype, KV_BYTES)])
    return KV_BYTES[kv_dtype] or (shape.kv_bits // 8) or shape.dtype_bytes


def kv_layout(
    shape: ModelShape, tp: int = 1, kv_dtype: str = "auto", block_size: int = BLOCK_SIZE
) -> KvLayout:
    """The KV cache of one of ``tp`` cards.

    Args:
        block_size: least tokens of a block; a hybrid's block must hold a state.

    Raises:
        ConfigError: see ``cache_bytes``.
    """
    size = cache_bytes(shape, kv_dtype)
    kinds = Counter((one.kind, one.window, one.kv_elements(tp) * size) for one in shape.attentions)
    state = max((_state_bytes(one, tp) for one in shape.states), default=0)
    states = sum(1 for _ in shape.states)
    token_bytes = sum(each * n for (_, window, each), n in kinds.items() if not window)
    if not kinds:
        group = Group("state", 0, states, shape.max_len)
        return KvLayout((group,), states * state, 0, states * state, size)
    widest = max(each for _, _, each in kinds)
    if state:  # a block of attention is at least as large as a state, which is padded to it
        block_size = max(block_size, BLOCK_SIZE * math.ceil(state / (BLOCK_SIZE * widest)))
    page = block_size * widest
    counts = list(kinds.values()) + ([states] if states else [])
    if len({(kind, window) for kind, window, _ in kinds}) == 1 and not states:
        (kind, window, _), *_ = kinds
        total = sum(each * n for (_, _, each), n in kinds.items())
        group = Group(kind, window, sum(counts), block_size)
        return KvLayout((group,), block_size * total, token_bytes, 0, size)
    per_group = max(counts) if max(counts) < PADDED_BELOW * min(counts) else min(counts)
    groups = [
        Group(kind, window, share, block_size * _times(widest, each))
        for (kind, window, each), n in kinds.items()
        for share in _shares(n, per_group)
    ]
    groups += [Group("state", 0, share, shape.max_len) for share in _shares(states, per_group)]
    largest = max(group.layers for group in groups)
    return KvLayout(tuple(groups), largest * page, token_bytes, states * page, size)


def _times(widest: int, each: int) -> int:
    """How many times as many tokens a narrower layer's block has; padded if that is uneven."""
    return 1 if widest % each else widest // each


def _shares(layers: int, per_group: int) -> list[int]:
    """Layers of each group, as even as they can be."""
    groups = math.ceil(layers / per_group)
    return [len(range(n, layers, groups)) for n in range(groups)]


def _state_bytes(one: State, tp: int) -> int:
    return one.conv // tp * one.conv_bytes + one.recurrent // tp * one.recurrent_bytes


def read_bytes(shape: ModelShape, tokens: float, tp: int, size: int) -> float:
    """Bytes of KV cache and states that a decode of one sequence reads, one card's share.

    Args:
        tokens: of the sequence.
        size: bytes of a cached element.
    """
    read = 0.0
    for layer in shape.layers:
        if isinstance(layer.mixer, Attention):
            seen = min(tokens, layer.mixer.window or tokens)
            read += seen * layer.mixer.kv_elements(tp) * size
        else:  # read, and written back
            read += 2 * _state_bytes(layer.mixer, tp)
    return read
