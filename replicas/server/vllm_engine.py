"""Ray Serve LLM's vLLM engine, with the model in EngineCore's own process if configured.

On CPU vLLM puts the model into a worker process; worker and EngineCore wait for each other by
spinning. These are two busy processes per replica, and on a small machine others lack a core. On a
GPU Ray Serve LLM adds a Ray executor, even for a single worker.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from vllm.platforms import current_platform
from vllm.utils.ompmultiprocessing import OMPProcessManager

from replicas.engine.settings import parse_settings
from replicas.server.plain_calls import AdmittingEngine
from replicas.server.startup import REPLICA
from replicas.workarounds.core_process import quick_imports

EMULATED = "replicas.emulator.executor.EmulatedExecutor"
SLICE_OF_GPU = 0.001  # what Ray Serve LLM's own task on the same bundle asks for


class BrimfulEngine(AdmittingEngine):
    """Applies ``executor`` and ``emulate`` of ``additional_config.brimful``.

    The executor cannot be named in ``engine_kwargs``: Ray Serve LLM and vLLM's CPU platform
    overwrite it there. So it is set on the finished configuration, just before the engine starts.
    """

    def _start_async_llm_engine(
        self, vllm_engine_args: Any, vllm_engine_config: Any, placement_group: Any
    ) -> Any:
        REPLICA.ends("configuration")
        with contextlib.ExitStack() as spawning:
            spawning.enter_context(quick_imports())
            settings = parse_settings(vllm_engine_config.additional_config)
            if settings.emulate:
                vllm_engine_config.parallel_config.distributed_executor_backend = EMULATED
            elif settings.executor == "in_process":
                vllm_engine_config.parallel_config.distributed_executor_backend = "uni"
                # EngineCore is spawned inside, and inherits the environment.
                spawning.enter_context(worker_environment(vllm_engine_config, placement_group))
            return super()._start_async_llm_engine(
                vllm_engine_args, vllm_engine_config, placement_group
            )


@contextlib.contextmanager
def worker_environment(vllm_config: Any, placement_group: Any) -> Iterator[None]:
    """The environment of a worker process, for a ``with`` block.

    On CPU the OpenMP threads and their cores, as in vLLM's multiprocessing executor; on a GPU the
    card of the replica's placement group, as Ray sets it for its workers.
    """
    if vllm_config.device_config.device_type == "cpu":
        with OMPProcessManager(vllm_config).configure_omp_envs(rank=0, local_rank=0):
            yield
        return
    name = current_platform.device_control_env_var
    with _set(name, gpus_of(placement_group)):
        yield


def gpus_of(placement_group: Any) -> str:
    """The cards of a placement group's first bundle, as in ``CUDA_VISIBLE_DEVICES``.

    The replica holds no GPU: its actor is placed in the first bundle without one, and the bundle's
    card is the worker's.
    """

    def visible() -> str:
        # Local, so that it travels by value: importing this module in a task takes ten seconds.
        return ",".join(map(str, ray.get_gpu_ids()))

    in_bundle = PlacementGroupSchedulingStrategy(placement_group, placement_group_bundle_index=0)
    task = ray.remote(visible).options(
        num_cpus=0, num_gpus=SLICE_OF_GPU, scheduling_strategy=in_bundle
    )
    gpus: str = ray.get(task.remote())
    return gpus


@contextlib.contextmanager
def _set(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
