"""The server class over an emulated accelerator, which clients see in ``/v1/models``."""

from typing import Any

from replicas.emulator.executor import EmulatedExecutor
from replicas.engine.settings import parse_settings
from replicas.server.plain_calls import AdmittingEngine
from replicas.server.server import BrimfulServer
from replicas.server.startup import REPLICA
from replicas.workarounds.core_process import quick_imports


class EmulatedEngine(AdmittingEngine):
    """Ray Serve LLM's vLLM engine on ``EmulatedExecutor``.

    The executor cannot be named in ``engine_kwargs``: Ray Serve LLM sets it there itself.
    """

    def _start_async_llm_engine(
        self, vllm_engine_args: Any, vllm_engine_config: Any, placement_group: Any
    ) -> Any:
        REPLICA.ends("configuration")
        vllm_engine_config.parallel_config.distributed_executor_backend = EmulatedExecutor
        with quick_imports():
            return super()._start_async_llm_engine(
                vllm_engine_args, vllm_engine_config, placement_group
            )


class EmulatedServer(BrimfulServer):
    """Real in all but the accelerator; ``/v1/models`` gives ``emulated:PROFILE`` as the root."""

    _default_engine_cls = EmulatedEngine

    async def start(self) -> None:
        await super().start()
        settings = parse_settings(self._llm_config.engine_kwargs["additional_config"]).emulate
        assert settings is not None  # the app builder names this class only with the block
        for path in self.engine._oai_models.base_model_paths:
            path.model_path = f"emulated:{settings.profile}"
