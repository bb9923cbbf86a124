"""vLLM's private side: what the scheduler reads of the model and its graphs."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.config import CompilationConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.metrics import perf

from replicas.engine.engine_options import graph_tokens
from replicas.engine.kv_holders import kv_read_frac, kv_token_bytes
from serve_app.demo.tiny_model import make_tiny_model


@pytest.mark.parametrize("enforce_eager", [True, False])
def test_on_cpu_there_are_none(tmp_path: Path, enforce_eager: bool) -> None:
    model = str(make_tiny_model(tmp_path / "model"))
    config = EngineArgs(model=model, enforce_eager=enforce_eager).create_engine_config()
    assert graph_tokens(config) == 0
    config.compilation_config.max_cudagraph_capture_size = 512
    assert graph_tokens(config) == 512


def test_the_size_has_that_name() -> None:
    assert "max_cudagraph_capture_size" in CompilationConfig.__dataclass_fields__


LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "dtype": "bfloat16",
}


def model_config(tmp_path: Path, **changed: Any) -> Any:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA_8B, **changed}))
    return EngineArgs(str(tmp_path), skip_tokenizer_init=True).create_engine_config()


@pytest.mark.parametrize("workers", [1, 2])
def test_vllm_counts_the_weights_that_a_decode_reads(tmp_path: Path, workers: int) -> None:
    # 8.03e9 parameters less the input embeddings, 2 bytes each; a worker has its share of both.
    weights = 2 * (8.03e9 - 128256 * 4096)
    config = model_config(tmp_path)
    config.parallel_config.tensor_parallel_size = workers
    assert kv_read_frac(config, 131_072) == pytest.approx(131_072 / weights, 0.01)


def test_of_a_model_that_vllm_cannot_count_it_is_not_known(tmp_path, monkeypatch):
    monkeypatch.setattr("vllm.v1.metrics.perf._COMPONENT_METRICS_REGISTRY", {})
    assert kv_read_frac(model_config(tmp_path), 131_072) == 0.0


def test_an_error_of_that_count_does_not_stop_an_engine(tmp_path, monkeypatch):
    def fails(config: Any) -> None:
        raise AttributeError("num_experts")

    monkeypatch.setattr("replicas.engine.kv_holders.ModelMetrics", fails)
    assert kv_read_frac(model_config(tmp_path), 131_072) == 0.0


@pytest.mark.parametrize("workers", [1, 2])
def test_bytes_of_a_token_are_those_of_all_workers(workers: int) -> None:
    manager = SimpleNamespace(block_pool=SimpleNamespace(num_gpu_blocks=101))
    scheduler = SimpleNamespace(
        kv_cache_config=SimpleNamespace(
            kv_cache_tensors=[SimpleNamespace(size=800_000)] * 2, kv_cache_groups=[None]
        ),
        cache_config=SimpleNamespace(kv_cache_size_tokens=None),
        kv_cache_manager=manager,
        block_size=16,
        vllm_config=SimpleNamespace(parallel_config=SimpleNamespace(tensor_parallel_size=workers)),
    )
    assert kv_token_bytes(scheduler) == workers * 1000
    manager.block_pool.num_gpu_blocks = 1  # the null block: a model without KV
    assert kv_token_bytes(scheduler) == 0.0


def test_without_its_feed_forward_layers_a_model_is_not_counted(tmp_path, monkeypatch):
    known = {k: v for k, v in perf._COMPONENT_METRICS_REGISTRY.items() if k != "ffn"}
    monkeypatch.setattr(perf, "_COMPONENT_METRICS_REGISTRY", known)
    assert kv_read_frac(model_config(tmp_path), 131_072) == 0.0
