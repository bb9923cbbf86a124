"""The parts of vLLM's executors that ``replicas.server.vllm_engine`` uses, and its results."""

import os

import pytest
from vllm.platforms import current_platform
from vllm.utils.ompmultiprocessing import OMPProcessManager
from vllm.v1.executor.abstract import Executor
from vllm.v1.executor.multiproc_executor import MultiprocExecutor
from vllm.v1.executor.uniproc_executor import UniProcExecutor

from replicas.server.vllm_engine import worker_environment
from tests.vllm.harness import engine_config

BIND = "VLLM_CPU_OMP_THREADS_BIND"


def omp() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k.startswith(("OMP_", "GOMP_", "KMP_"))}


def test_on_cpu_vllm_turns_uni_into_mp_so_it_is_set_on_the_finished_config(tiny_llama):
    config = engine_config(tiny_llama, distributed_executor_backend="uni")
    assert config.parallel_config.distributed_executor_backend == "mp"
    assert Executor.get_class(config) is MultiprocExecutor
    config.parallel_config.distributed_executor_backend = "uni"
    assert Executor.get_class(config) is UniProcExecutor


def test_enginecore_is_spawned_with_the_threads_a_worker_would_have(tiny_llama, monkeypatch):
    config, before = engine_config(tiny_llama), omp()
    monkeypatch.setenv(BIND, "0-1")
    with worker_environment(config, None):
        inside = omp()
    with OMPProcessManager(config).configure_omp_envs(rank=0, local_rank=0):
        assert inside == omp()
    assert inside["OMP_NUM_THREADS"] == "2"
    assert omp() == before


@pytest.mark.parametrize("before", [None, "", "7"])
def test_on_a_gpu_enginecore_is_given_the_card_of_the_placement_group(
    tiny_llama, monkeypatch, before
):
    config = engine_config(tiny_llama)
    monkeypatch.setattr(config.device_config, "device_type", "cuda")
    monkeypatch.setattr("replicas.server.vllm_engine.gpus_of", lambda group: f"the card of {group}")
    variable = current_platform.device_control_env_var
    if before is None:
        monkeypatch.delenv(variable, raising=False)
    else:
        monkeypatch.setenv(variable, before)
    with worker_environment(config, "group"):
        assert os.environ[variable] == "the card of group"
    assert os.environ.get(variable) == before
