"""Ray Serve LLM's own ingress, with the headers of a refusal: when to come again, and why."""

from collections.abc import AsyncGenerator
from typing import Any

from ray.llm._internal.serve.core.configs.openai_api_models import ErrorResponse
from ray.llm._internal.serve.core.ingress.ingress import OpenAiIngress
from starlette.responses import JSONResponse, Response

from replicas.admission.answers import HEADERS


class RefusalError(Exception):
    """A replica refused a request, and said with which headers."""

    def __init__(self, refused: ErrorResponse, headers: dict[str, str]) -> None:
        self.refused, self.headers = refused, headers
        super().__init__(refused.error.message)


class AdmissionIngress(OpenAiIngress):
    """Answers a refusal as the replica said it: Ray's own keeps status and message alone."""

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
