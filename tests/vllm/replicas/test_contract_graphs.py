"""vLLM's private side: what the scheduler reads of the model and its graphs."""

import json
from pathlib import Path
from typing import Any

import pytest
from vllm.engine.arg_utils import EngineArgs

from replicas.engine.kv_holders import kv_read_frac

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


def test_an_error_of_that_count_does_not_stop_an_engine(tmp_path, monkeypatch):
    def fails(config: Any) -> None:
        raise AttributeError("num_experts")

    monkeypatch.setattr("replicas.engine.kv_holders.ModelMetrics", fails)
    assert kv_read_frac(model_config(tmp_path), 131_072) == 0.0
