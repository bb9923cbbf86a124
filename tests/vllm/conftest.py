"""Tiny models, made once into the repository's cache, and the environment of a CPU engine."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

# Before the first import of vllm, which reads them.
os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # engines share the cores
os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that spin for a tiny model slow each other
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # torch threads run in this process

CACHE = Path(__file__).parents[2] / ".cache"


@pytest.fixture(autouse=True, scope="module")
def environment_is_read_again() -> None:
    """An engine core of this process keeps what it read of the environment for all that follow."""
    import vllm.envs

    vllm.envs.disable_envs_cache()


@pytest.fixture(scope="session")
def tiny_llama() -> Path:
    from serve_app.demo.tiny_model import make_tiny_model

    return make_tiny_model(CACHE / "tiny-llama")


@pytest.fixture(scope="session")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A LoRA adapter of rank 4 for ``tiny_llama``, on two projections of every layer, by hand."""
    import torch
    from safetensors.torch import save_file
    from vllm.lora.request import LoRARequest

    path = tmp_path_factory.mktemp("adapter")
    generator = torch.Generator().manual_seed(7)
    weights = {}
    for layer in range(4):
        for name, size in (("q_proj", 128), ("v_proj", 64)):
            key = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{key}.lora_A.weight"] = torch.randn(4, 128, generator=generator)
            weights[f"{key}.lora_B.weight"] = torch.randn(size, 4, generator=generator)
    save_file(weights, path / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "v_proj"],
        "bias": "none",
    }
    (path / "adapter_config.json").write_text(json.dumps(config))
    return LoRARequest("by-hand", 1, str(path))
