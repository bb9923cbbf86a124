"""Ray Serve LLM's own ingress behind our door, with the headers of a refusal.

Those say when to come again, and why.
"""

import logging
from collections.abc import AsyncGenerator
from typing import Any

from ray.llm._internal.serve.core.configs.openai_api_models import ErrorResponse
from ray.llm._internal.serve.core.ingress.ingress import OpenAiIngress
from ray.serve.metrics import Gauge
from starlette.responses import JSONResponse, Response

from controller.errors import ConfigError
from controller.metrics import CONFIG_REFUSED
from replicas.admission.answers import HEADERS
from replicas.door.door import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.settings import parse_security
from replicas.door_metrics import DoorMetrics
from replicas.settings import live_security

logger = logging.getLogger("ray.serve")


class RefusalError(Exception):
    """A replica refused a request, and said with which headers."""

    def __init__(self, refused: ErrorResponse, headers: dict[str, str]) -> None:
        self.refused, self.headers = refused, headers
        super().__init__(refused.error.message)


class AdmissionIngress(OpenAiIngress):
    """Answers a refusal as the replica said it: Ray's own keeps status and message alone.

    Args:
        security: the application's block, as plain data.
    """

    def __init__(self, *args: Any, security: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._security = parse_security(security)
        # That one of replicas', which Ray tells apart by their deployments.
        self._config_refused = Gauge(*CONFIG_REFUSED.args)
        self._door = Door(Rules(self._security), DoorMetrics().count)

    async def __serve_build_asgi_app__(self) -> Any:
        """Ray Serve asks for it once the app that the class was decorated with is there."""
        self.app.add_middleware(DoorMiddleware, door=self._door)  # outside of all others
        return self.app

    def reconfigure(self, user_config: Any, rank: Any = None) -> None:
        """Go by the ``security`` block of the deployment's ``user_config``, as replicas do."""
        try:
            self._door.rules = Rules(live_security(user_config, self._security))
        except ConfigError as error:
            logger.error("The user_config is refused; what held before holds on: %s", error)
            self._config_refused.set(1)
        else:
            self._config_refused.set(0)

    async def _get_response(self, **call: Any) -> AsyncGenerator[Any, None]:
        async for response in super()._get_response(**call):
            first = response[0] if isinstance(response, list) else response
            if isinstance(first, ErrorResponse):
                extra = first.error.model_extra or {}
                if HEADERS in extra:
                    raise RefusalError(first, extra[HEADERS])
            yield response

    async def _process_llm_request(self, *args: Any, **call: Any) -> Response:
        try:
            return await super()._process_llm_request(*args, **call)
        except RefusalError as error:
            said = error.refused.error
            body = {
                "message": said.message,
                "type": said.type,
                "param": said.param,
                "code": said.code,
            }
            return JSONResponse({"error": body}, status_code=said.code, headers=error.headers)
