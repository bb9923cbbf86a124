"""Tiny models, made once into the repository's cache, and the environment of a CPU engine."""

import os
from pathlib import Path

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
    from benchmarks.live.tiny_model import make_tiny_model

    return make_tiny_model(CACHE / "tiny-llama")


@pytest.fixture(scope="session")
def tiny_mixtral() -> Path:
    from benchmarks.live.tiny_model import make_tiny_model

    return make_tiny_model(CACHE / "tiny-mixtral", kind="mixtral")


@pytest.fixture(scope="session")
def small_model() -> Path:
    from benchmarks.live.small_model import make_small_model

    return make_small_model(CACHE / "smollm2-135m")
