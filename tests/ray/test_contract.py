"""Everything of Ray 2.60 that is leaned on and not promised: a change fails here, by name."""

import inspect
from dataclasses import fields
from typing import Any

import pytest
from ray.llm._internal.serve.core.configs.accelerators import (
    CPUConfig,
    GPUAccelerator,
    GPUConfig,
)
from ray.llm._internal.serve.core.server.llm_server import (
    LLMServer,
    _merge_replica_actor_and_child_actor_bundles,
)
from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine
from ray.llm._internal.serve.engines.vllm.vllm_models import VLLMEngineConfig
from ray.llm._internal.serve.utils.node_initialization_utils import (
    initialize_node,
    initialize_remote_node,
)
from ray.serve.config import AutoscalingConfig
from ray.serve.context import ReplicaContext
from ray.serve.llm import LLMConfig

from replicas.engine import SLICE_OF_GPU
from replicas.executor import RAY_SERVE_LLM, accelerator_kind
from replicas.server import BrimfulServer
from serve_app.autoscaling_block import AUTOSCALING_POLICY
from serve_app.config import SERVER, ray_llm_config

ENTRY = {
    "model_loading_config": {"model_id": "m", "model_source": "m"},
    "accelerator_config": {"kind": "cpu"},
    "placement_group_config": {"bundle_per_worker": {"CPU": 0.5}},
    "engine_kwargs": {"max_num_seqs": 8},
    "deployment_config": {"autoscaling_config": {"min_replicas": 1, "max_replicas": 2}},
    "batching": {"policy": "static"},
}


def test_the_server_class_still_starts_its_engine_in_start() -> None:
    assert inspect.iscoroutinefunction(LLMServer.start)
    assert inspect.iscoroutinefunction(LLMServer.check_health)
    source = inspect.getsource(LLMServer)
    assert "await self.start()" in source
    assert "self._llm_config = llm_config" in source


def test_the_engine_still_keeps_its_client_under_this_name() -> None:
    assert "self._engine_client = self._start_async_llm_engine(" in inspect.getsource(
        VLLMEngine.start
    )


def test_the_engine_is_still_started_by_a_method_that_goes_by_the_configured_executor() -> None:
    start = VLLMEngine._start_async_llm_engine
    names = ["self", "vllm_engine_args", "vllm_engine_config", "placement_group"]
    assert list(inspect.signature(start).parameters) == names
    assert "Executor.get_class(vllm_engine_config)" in inspect.getsource(start)
    assert "return self._default_engine_cls" in inspect.getsource(
        LLMServer._get_default_engine_class
    )


@pytest.mark.parametrize(
    ("kind", "theirs"), [(CPUConfig(kind="cpu"), "mp"), (GPUConfig(kind="gpu"), "ray")]
)
def test_ray_serve_llm_still_chooses_the_executor_by_the_kind_of_accelerator(
    kind: CPUConfig | GPUConfig, theirs: str
) -> None:
    config = VLLMEngineConfig(model_id="m", accelerator_config=kind)
    assert config.get_initialization_kwargs()["distributed_executor_backend"] == theirs
    assert RAY_SERVE_LLM[kind.kind] == theirs


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"accelerator_config": {"kind": "cpu"}},
        {"placement_group_config": {"bundle_per_worker": {"CPU": 1}}},
        {"placement_group_config": {"bundles": [{"CPU": 1}, {"GPU": 1}]}},
        {"placement_group_config": {"bundle_per_worker": {"TPU": 4}}},
        {"accelerator_type": "H100"},
        {"accelerator_type": "TPU-V6E"},
    ],
)
def test_the_kind_of_accelerator_is_inferred_as_ray_serve_llm_does(keys: dict[str, Any]) -> None:
    entry = {"model_loading_config": ENTRY["model_loading_config"], **keys}
    inferred = LLMConfig.model_validate(entry).accelerator_config
    assert inferred is not None
    assert accelerator_kind(entry) == inferred.kind


def test_a_gpu_replica_holds_no_card_itself_and_its_bundle_lets_a_slice_go() -> None:
    assert GPUAccelerator().get_remote_options() == {"num_gpus": SLICE_OF_GPU}
    merged = _merge_replica_actor_and_child_actor_bundles(
        GPUAccelerator().default_bundles(num_devices=1), {"CPU": 1, "GPU": 0}
    )
    assert merged == [{"CPU": 1, "GPU": 1}]


def test_a_replica_still_knows_its_id() -> None:
    assert "replica_id" in {field.name for field in fields(ReplicaContext)}


def test_an_entry_with_our_blocks_becomes_a_valid_llm_config() -> None:
    config = LLMConfig.model_validate(ray_llm_config(ENTRY))
    assert config.server_cls is BrimfulServer
    assert SERVER.replace(":", ".") == f"{BrimfulServer.__module__}.{BrimfulServer.__name__}"
    engine = config.get_engine_config()
    assert engine.engine_kwargs["scheduler_cls"].endswith("DynamicBatchScheduler")
    assert "brimful" in engine.engine_kwargs["additional_config"]
    autoscaling = AutoscalingConfig(**config.deployment_config["autoscaling_config"])
    assert autoscaling.policy.policy_function == AUTOSCALING_POLICY


@pytest.mark.parametrize("key", ["RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING"])
def test_direct_streaming_still_goes_by_its_variable(key: str) -> None:
    from ray.llm._internal.serve import constants

    assert f'"{key}"' in inspect.getsource(constants)


def test_the_engine_is_still_started_with_these_steps_and_no_others() -> None:
    # BrimfulServer takes its place: telemetry in a thread, and none where nothing may be sent.
    source = inspect.getsource(LLMServer._start_engine)
    code = [line.strip() for line in source.splitlines() if not line.strip().startswith("#")]
    assert [line for line in code if line] == [
        "async def _start_engine(self):",
        "if self.engine is None:",
        'raise ValueError("Engine is not set")',
        "await self.engine.start()",
        "push_telemetry_report_for_all_models(all_models=[self._llm_config])",
        "if RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING:",
        'record_extra_usage_tag(TagKey.LLM_SERVE_DIRECT_STREAMING_ENABLED, "1")',
    ]


def test_a_callback_may_still_fetch_the_model_files_in_the_place_of_ray_serve_llms_tasks() -> None:
    source = inspect.getsource(VLLMEngine.start)
    before, _, after = source.partition("if callback.ctx.run_init_node:")
    assert 'run_callback("on_before_node_init")' in before
    assert after.lstrip().startswith("await initialize_node(self.llm_config)")
    # What a task does on a node, and what becomes of its answer.
    assert list(inspect.signature(initialize_remote_node).parameters) == ["llm_config"]
    assert "get_engine_config().hf_model_id = paths[0]" in inspect.getsource(initialize_node)
