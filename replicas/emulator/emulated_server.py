"""The server class over an emulated accelerator, which clients see in ``/v1/models``."""

from replicas.engine.settings import parse_settings
from replicas.server.server import BrimfulServer


class EmulatedServer(BrimfulServer):
    """Real in all but the accelerator; ``/v1/models`` gives ``emulated:PROFILE`` as the root."""

    async def start(self) -> None:
        await super().start()
        settings = parse_settings(self._llm_config.engine_kwargs["additional_config"]).emulate
        assert settings is not None  # the app builder names this class only with the block
        for path in self.engine._oai_models.base_model_paths:
            path.model_path = f"emulated:{settings.profile}"
