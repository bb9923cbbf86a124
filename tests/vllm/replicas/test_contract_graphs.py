"""vLLM's private side: the size of the largest CUDA graph, as the scheduler reads it."""

from pathlib import Path

import pytest
from vllm.config import CompilationConfig
from vllm.engine.arg_utils import EngineArgs

from benchmarks.live.tiny_model import make_tiny_model
from replicas.engine_options import graph_tokens


@pytest.mark.parametrize("enforce_eager", [True, False])
def test_on_cpu_there_are_none(tmp_path: Path, enforce_eager: bool) -> None:
    model = str(make_tiny_model(tmp_path / "model"))
    config = EngineArgs(model=model, enforce_eager=enforce_eager).create_engine_config()
    assert graph_tokens(config) == 0
    config.compilation_config.max_cudagraph_capture_size = 512
    assert graph_tokens(config) == 512


def test_the_size_has_that_name() -> None:
    assert "max_cudagraph_capture_size" in CompilationConfig.__dataclass_fields__
