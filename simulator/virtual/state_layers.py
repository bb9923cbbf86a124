"""A group of state-space layers, for hybrid models: their prompts end at blocks."""

import torch
from vllm.v1.kv_cache_interface import KVCacheGroupSpec, MambaSpec


def state_group(block_size: int) -> KVCacheGroupSpec:
    """Layers that keep a state, cached where blocks end; it takes as much as a block of KV."""
    kv_bytes = 2 * block_size * 64 * 2  # as the other group has: keys and values of one head
    return KVCacheGroupSpec(
        ["states"],
        MambaSpec(
            block_size=block_size,
            shapes=((kv_bytes // 4,),),
            dtypes=(torch.float32,),
            mamba_cache_mode="align",
        ),
    )
