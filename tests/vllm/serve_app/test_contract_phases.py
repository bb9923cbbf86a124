"""What a start is told by is what vLLM and Ray's replicas write."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from replicas.server.startup import StartUp
from serve_app.launch.phases import PHASES

# By file, what vLLM hands to its logger, and values for it.
WRITTEN = (
    ("v1/worker/cpu_model_runner.py", "Starting to load model %s...", ("m",)),
    ("v1/worker/gpu_model_runner.py", "Starting to load model %s...", ("m",)),
    ("model_executor/model_loader/default_loader.py", "Loading weights took %.2f seconds", (1,)),
    (
        "v1/worker/gpu_model_runner.py",
        "Model loading took %s GiB memory and %.6f seconds",
        ("14.99", 3),
    ),
    ("v1/worker/cpu_model_runner.py", "Warming up model for the compilation...", ()),
    ("compilation/backends.py", "Dynamo bytecode transform time: %.2f s", (5,)),
    ("compilation/monitor.py", "torch.compile took %.2f s in total", (40,)),
    ("v1/core/kv_cache_utils.py", "GPU KV cache size: %s tokens, ", ("24,576",)),
    (
        "v1/worker/gpu_model_runner.py",
        "Graph capturing finished in %.0f secs, took %.2f GiB",
        (9, 1),
    ),
    (
        "v1/engine/core.py",
        "init engine (profile, create kv cache, warmup model) took %.2f s",
        (50,),
    ),
)


def found(line: str) -> list[str]:
    """What the line is told as."""
    return [told for pattern, told in PHASES if pattern.search(line)]


@pytest.mark.parametrize(("file", "text", "values"), WRITTEN)
def test_vllm_writes_it(file: str, text: str, values: tuple[object, ...]) -> None:
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    assert text in (Path(spec.origin).parent / file).read_text()
    assert len(found(text % values)) == 1


def test_a_replica_writes_it() -> None:
    start = StartUp(0.0, clock=lambda: 1.5)
    start.ends("imports")
    assert found(str(start)) == ["replica: started in {}"]


def test_every_phase_is_written_by_somebody() -> None:
    told = {one for _, text, values in WRITTEN for one in found(text % values)}
    assert {one for _, one in PHASES} == told | {"replica: started in {}"}
