"""vLLM's own model classes on the meta device: every layer and its KV cache spec, no weights.

``initialize_model`` under ``torch.device("meta")`` makes all parameters without memory, and each
attention layer then says its ``KVCacheSpec`` as it says it to the model runner
(``GPUModelRunner.get_kv_cache_spec``); ``get_kv_cache_configs`` makes blocks of them.
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import (
    destroy_model_parallel,
    init_distributed_environment,
    initialize_model_parallel,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.platforms import current_platform
from vllm.v1.core.kv_cache_utils import get_kv_cache_capacity, get_kv_cache_configs
from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheConfig, KVCacheSpec

LAYOUT = "LBNHC"  # what an engine resolves on a GPU with FlashAttention


@dataclass(frozen=True)
class MetaModel:
    """A model as vLLM builds it."""

    config: VllmConfig
    parameters: int
    specs: dict[str, KVCacheSpec]

    def kv(self, memory_bytes: int) -> KVCacheConfig:
        """The blocks of so much memory."""
        return get_kv_cache_configs(self.config, [self.specs], [memory_bytes])[0]

    def capacity(self, memory_bytes: int) -> tuple[int, float]:
        """What it logs: tokens of KV memory, sequences of the longest length."""
        return get_kv_cache_capacity(self.config, self.kv(memory_bytes))


def meta_model(config: dict[str, Any], **engine: Any) -> MetaModel:
    """Build it.

    The CPU has no kernels for fp8 and mxfp4, and KV memory does not depend on them:
    ``quantization_config`` is left out. Of a model that sees, the text model: its image processor
    needs torchvision.
    """
    text = config.get("text_config")
    if text is not None:
        architecture = config["architectures"][0].replace("ConditionalGeneration", "CausalLM")
        config = {**text, "architectures": [architecture], "torch_dtype": config["torch_dtype"]}
    config = {key: value for key, value in config.items() if key != "quantization_config"}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        args = EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            load_format="dummy",
            enforce_eager=True,
            **engine,
        )
        made = args.create_engine_config()
        with set_current_vllm_config(made):
            if not torch.distributed.is_initialized():
                _, store = tempfile.mkstemp()  # read again for every group of ranks
                init_distributed_environment(1, 0, f"file://{store}", 0, "gloo")
            initialize_model_parallel(1)  # each time: experts have a group of their own
            try:
                with torch.device("meta"):
                    model = initialize_model(made)
                current_platform.update_block_size_for_backend(made)
                specs = _specs(made)
            finally:
                destroy_model_parallel()
    made.cache_config.kv_cache_layout = LAYOUT
    return MetaModel(made, sum(one.numel() for one in model.parameters()), specs)


def _specs(config: VllmConfig) -> dict[str, KVCacheSpec]:
    """As ``GPUModelRunner.get_kv_cache_spec`` collects them."""
    specs: dict[str, KVCacheSpec] = {}
    for name, layer in config.compilation_config.static_forward_context.items():
        if not hasattr(layer, "get_kv_cache_spec"):
            continue
        spec = layer.get_kv_cache_spec(config)
        if isinstance(spec, AttentionSpec):
            spec = layer.get_attn_backend().customize_spec(spec)
        if spec is not None:
            specs[name] = spec
    return specs
