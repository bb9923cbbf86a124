"""Bare vLLM's API server with the model in EngineCore's process; vLLM's CPU build would start a
worker process. ``python -m benchmarks.path.bare`` takes the arguments of ``vllm serve``.
"""

from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.ompmultiprocessing import OMPProcessManager


def in_process() -> None:
    """Configure every engine of this process as ``replicas.server.vllm_engine`` does."""
    create = AsyncEngineArgs.create_engine_config

    def with_model_in_process(self: AsyncEngineArgs, *args: Any, **kwargs: Any) -> Any:
        config = create(self, *args, **kwargs)
        config.parallel_config.distributed_executor_backend = "uni"
        # For good: this process starts one engine, which inherits the environment.
        OMPProcessManager(config).configure_omp_envs(rank=0, local_rank=0).__enter__()
        return config

    AsyncEngineArgs.create_engine_config = with_model_in_process


if __name__ == "__main__":
    from vllm.entrypoints.launchers.api_server.entry import main

    in_process()
    main()
