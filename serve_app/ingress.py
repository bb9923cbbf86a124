"""Ray Serve LLM's own ingress behind our middleware, with errors in the form of OpenAI's API.

Ray's own errors keep only status and message, have another form if FastAPI answers, and
tell addresses, process ids and paths of the cluster if a replica failed.
"""

import logging
from collections.abc import AsyncGenerator
from typing import Any

from ray.llm._internal.serve.core.configs.openai_api_models import (
    ErrorResponse,
    ModelCard,
    ModelList,
)
from ray.llm._internal.serve.core.ingress.ingress import OpenAiIngress
from ray.serve.metrics import Counter, Gauge
from starlette.requests import Request
from starlette.responses import Response

from controller.errors import ConfigError
from controller.metrics import AUTO_MODEL, CONFIG_REFUSED
from replicas.admission.answers import HEADERS, SERVER_ERROR, Answer
from replicas.admission.api_errors import error_frame
from replicas.door.auth import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.paths import HEALTH, PING
from replicas.door.settings import parse_security
from replicas.engine.settings import live_security
from replicas.server.metrics import DoorMetrics
from replicas.server.stream_ends import OpenAnswers, StreamEndMiddleware, before_shutdown
from replicas.workarounds.plain_errors import RefusalError, answer_errors
from serve_app.auto_model import AutoModel, RequestFacts, choose
from serve_app.config import DRAIN_TIMEOUT_S

logger = logging.getLogger("ray.serve")

FAILED = "the replica that served this request failed"
MODEL_HEADER = "x-brimful-model"


class AdmissionIngress(OpenAiIngress):
    """Answers errors as ``replicas.workarounds.plain_errors`` has them.

    Args:
        security, auto_model: the application's blocks, as plain data.
    """

    def __init__(
        self,
        *args: Any,
        security: dict[str, Any] | None = None,
        auto_model: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._auto = None if auto_model is None else AutoModel.model_validate(auto_model)
        self._sent = Counter(*AUTO_MODEL.args)
        self._security = parse_security(security)
        # The one of the replicas, which Ray tells apart by their deployments.
        self._config_refused = Gauge(*CONFIG_REFUSED.args)
        self._door = Door(Rules(self._security), DoorMetrics().count)

    async def __serve_build_asgi_app__(self) -> Any:
        """Ray Serve reads it once the app that decorates the class exists."""
        answer_errors(self.app)
        # Of this ingress; Ray's app has none.
        self.app.add_api_route(HEALTH, _healthy, methods=["GET"])
        self.app.add_api_route(PING, _healthy, methods=["GET", "POST"])
        self._door.served = {getattr(route, "path", "") for route in self.app.routes}
        answers = OpenAnswers()
        before_shutdown(answers.drain)
        await answers.clocks.replace_rays()
        self.app.add_middleware(DoorMiddleware, door=self._door)
        # Ray's handlers do not see a disconnect: a cancelled request ends at once.
        self.app.add_middleware(StreamEndMiddleware, answers=answers, ends_by_itself_s=0.0)
        return self.app

    def reconfigure(self, user_config: Any, rank: Any = None) -> None:
        """Use the ``security`` block of the deployment's ``user_config``, as replicas do."""
        try:
            self._door.rules = Rules(live_security(user_config, self._security))
        except ConfigError as error:
            logger.error("The user_config is refused; the one before stays in force: %s", error)
            self._config_refused.set(1)
        else:
            self._config_refused.set(0)

    @classmethod
    def get_deployment_options(cls, llm_configs: Any = None) -> dict[str, Any]:
        """Ray's own options, with as much time to end open streams as the replicas have."""
        options = super().get_deployment_options(llm_configs)
        return {"graceful_shutdown_timeout_s": DRAIN_TIMEOUT_S, **options}

    async def models(self) -> ModelList:
        """Ray's own list, and the auto model."""
        known = await super().models()
        if self._auto is not None and (card := await self.model(self._auto.name)) is not None:
            known.data.append(card)
        return known

    async def model(self, model_id: str) -> ModelCard | None:
        """Ray's own data; the auto model has its default model's."""
        if self._auto is None or model_id != self._auto.name:
            return await super().model(model_id)
        card = await super().model(self._auto.default)
        return card and card.model_copy(update={"id": model_id})

    async def _process_llm_request(
        self, body: Any, call_method: str, raw_request: Request | None = None
    ) -> Response:
        auto = self._auto
        if auto is None or body.model != auto.name:
            return await super()._process_llm_request(body, call_method, raw_request)
        headers = {} if raw_request is None else raw_request.headers
        facts = RequestFacts.of(body.model_dump(exclude_none=True), headers)
        body.model = choose(auto, facts)
        self._sent.inc(1, {"model": body.model})
        answer = await super()._process_llm_request(body, call_method, raw_request)
        answer.headers[MODEL_HEADER] = body.model
        return answer

    async def _get_response(self, **call: Any) -> AsyncGenerator[Any, None]:
        streams = False
        try:
            async for response in super()._get_response(**call):
                first = response[0] if isinstance(response, list) else response
                if isinstance(first, ErrorResponse):
                    extra = first.error.model_extra or {}
                    if HEADERS in extra:
                        raise RefusalError(first, extra[HEADERS])
                streams = streams or isinstance(first, str)
                yield response
        except Exception:
            if not streams:
                raise
            logger.exception("A stream ended without its last token.")
            yield error_frame(Answer(SERVER_ERROR, "engine_failed", FAILED)).decode()


async def _healthy() -> Response:
    return Response()
