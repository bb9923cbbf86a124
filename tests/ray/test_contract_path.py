"""What the way of a request leans on in Ray 2.60 and is not promised: a change fails here, by name.

No cluster is started: a chosen replica and one event loop show in what is built and in the source.
"""

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.llm._internal.serve.core.ingress import builder
from ray.serve import Application
from ray.serve._private import build_app as serve_build
from ray.serve._private.constants import SERVE_DEFAULT_APP_NAME
from ray.serve.exceptions import RayServeException
from ray.serve.llm import build_openai_app

from serve_app import build
from serve_app.build import build_app, serving_args
from serve_app.config import ONE_LOOP

ENTRY: dict[str, Any] = {
    "model_loading_config": {"model_id": "m", "model_source": "m"},
    "accelerator_config": {"kind": "cpu"},
    "placement_group_config": {"bundle_per_worker": {"CPU": 0.5}},
    "deployment_config": {"num_replicas": 1},
}
NAMED = {"request_router_class": "ray.serve._private.request_router:PowerOfTwoChoicesRequestRouter"}


@pytest.fixture(autouse=True)
def direct_streaming(monkeypatch: pytest.MonkeyPatch) -> None:
    _stream_directly(monkeypatch, True)
    monkeypatch.setattr(serve_build, "RAY_SERVE_ENABLE_HA_PROXY", True)
    # Ray Serve LLM asks for the driver's runtime environment, which would start Ray.
    context = SimpleNamespace(runtime_env={})
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)


def _stream_directly(monkeypatch: pytest.MonkeyPatch, directly: bool) -> None:
    # Ray and this project read the variable once, each into a name of its own.
    for module in (builder, build):
        monkeypatch.setattr(module, "RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING", directly)


def deployments(app: Application) -> tuple[list[str], str | None]:
    """The names of an application's deployments, and of the one that HAProxy asks for a replica."""
    built = serve_build.build_app(app, name=SERVE_DEFAULT_APP_NAME, route_prefix="/")
    router = built.ingress_request_router_deployment
    return [one.name for one in built.deployments], router.name if router else None


def test_one_replica_is_reached_without_asking_a_router() -> None:
    assert deployments(build_app({"llm_configs": [ENTRY]})) == (["BrimfulServer:m"], None)


@pytest.mark.parametrize(
    "own",
    [
        {"deployment_config": {"num_replicas": 1, "request_router_config": NAMED}},
        {"deployment_config": {"num_replicas": 2}},
        {"router": {"policy": "round_robin"}},
    ],
)
def test_a_request_router_is_asked_for_the_replica(own: dict[str, Any]) -> None:
    app = build_app({"llm_configs": [ENTRY | own]})
    assert deployments(app) == (["BrimfulServer:m"], "LLMRouter")


def test_ray_serve_llm_still_attaches_a_router_and_refuses_its_round_robin_without_it() -> None:
    app = build_openai_app(serving_args({"llm_configs": [ENTRY]}))
    assert deployments(app)[1] == "LLMRouter"
    app._ingress_request_router = None
    with pytest.raises(RayServeException, match="request_router_class"):
        deployments(app)


def test_without_direct_streaming_there_is_an_ingress_deployment_and_no_router(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _stream_directly(monkeypatch, False)
    names, router = deployments(build_app({"llm_configs": [ENTRY]}))
    assert names == ["BrimfulServer:m", "AdmissionIngress"]
    assert router is None


@pytest.mark.parametrize("given", [None, "1"])
def test_a_replica_has_one_event_loop_unless_its_runtime_environment_says_else(
    given: str | None,
) -> None:
    (name,) = ONE_LOOP
    own = {} if given is None else {"runtime_env": {"env_vars": {name: given, "A": "b"}}}
    (config,) = serving_args({"llm_configs": [ENTRY | own]}).llm_configs
    env = config.runtime_env["env_vars"]
    assert env == ({name: "0"} if given is None else {name: "1", "A": "b"})
    script = f"from ray.serve._private.replica import {name}; print({name})"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[-1] == str(given == "1")
