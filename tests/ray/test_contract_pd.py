"""What prefill and decode apart lean on in Ray 2.60 and vLLM 0.29 that is not promised.

No cluster is started: it shows in what is built and in the source.
"""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.llm._internal.serve.core.configs.openai_api_models import (
    ChatCompletionRequest,
    CompletionRequest,
)
from ray.llm._internal.serve.core.ingress import builder
from ray.llm._internal.serve.engines.vllm.kv_transfer.factory import KVConnectorBackendFactory
from ray.llm._internal.serve.serving_patterns.prefill_decode.builder import (
    build_pd_openai_app,
)
from ray.serve import Application
from ray.serve._private import build_app as serve_build
from ray.serve._private.constants import SERVE_DEFAULT_APP_NAME
from ray.serve._private.request_router.request_router import RequestRouter
from ray.serve._private.router import AsyncioRouter, CurrentLoopRouter, SingletonThreadRouter
from ray.serve.handle import DeploymentHandle
from vllm.config import KVTransferConfig

from replicas.server.pd_requests import KV_PARAMS, PLAIN
from replicas.server.pd_server import DecodeServer, PrefillServer
from serve_app import build
from serve_app.build import build_app
from tests.pd_configs import pd_args, pd_entry


@pytest.fixture(autouse=True)
def no_runtime_env(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ray Serve LLM asks for the driver's runtime environment, which would start Ray.
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(runtime_env={}))


def deployments(app: Application) -> dict[str, Any]:
    """The classes of an application's deployments, by name."""
    built = serve_build.build_app(app, name=SERVE_DEFAULT_APP_NAME, route_prefix="/")
    return {one.name: one.func_or_class for one in built.deployments}


@pytest.mark.parametrize("directly", [True, False])
def test_ours_builds_what_rays_builder_builds(
    monkeypatch: pytest.MonkeyPatch, directly: bool
) -> None:
    their_builder = inspect.getmodule(build_pd_openai_app)
    for module in (builder, build, their_builder):
        monkeypatch.setattr(module, "RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING", directly)
    monkeypatch.setattr(serve_build, "RAY_SERVE_ENABLE_HA_PROXY", True)
    plain = {key: pd_entry() for key in ("prefill_config", "decode_config")}
    stock = deployments(build_pd_openai_app(plain))
    ours = deployments(build_app(pd_args()))
    if directly:
        assert ours["Decode:m"] is not DecodeServer  # an ASGI app is around it
    else:
        stock["AdmissionIngress"] = stock.pop("OpenAiIngress")
    assert ours.keys() == stock.keys()
    assert issubclass(ours["Decode:m"], DecodeServer)
    assert issubclass(ours["Prefill:m"], PrefillServer)


def test_nixl_says_after_the_prefill_where_its_kv_is() -> None:
    backend = KVConnectorBackendFactory.get_backend_class("NixlConnector")
    assert not backend.requires_peer_binding
    assert not backend.concurrent_handoff


@pytest.mark.parametrize("kind", [CompletionRequest, ChatCompletionRequest])
def test_a_prefill_request_may_go_without_what_is_taken_off_it(kind: Any) -> None:
    known = PLAIN.keys() & kind.model_fields.keys()
    assert {"min_tokens", "stop", "logprobs", "response_format", "structured_outputs"} <= known
    assert {KV_PARAMS, "vllm_xargs", "n", "prompt_logprobs", "echo"} <= kind.model_fields.keys()


def test_a_handle_knows_how_many_replicas_there_are() -> None:
    assert "_router" in inspect.signature(DeploymentHandle.__init__).parameters
    for router in (SingletonThreadRouter, CurrentLoopRouter):
        assert "self._asyncio_router = " in inspect.getsource(router.__init__)
    assert isinstance(AsyncioRouter.request_router, property)
    assert isinstance(RequestRouter.curr_replicas, property)
    # A handle that is made of another by options() has the same router.
    assert "_router=self._router" in inspect.getsource(DeploymentHandle._options)


def test_kv_that_cannot_be_loaded_may_be_computed() -> None:
    assert KVTransferConfig(kv_load_failure_policy="recompute").kv_load_failure_policy
    assert KVTransferConfig().kv_load_failure_policy == "fail"  # which is why it is set
