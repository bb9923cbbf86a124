"""Everything of Ray 2.60 that is leaned on and not promised: a change fails here, by name.

No cluster is started: Python's show in their modules, those of C++ in the raylet's binary.
"""

import inspect
import subprocess
import sys
import time
from dataclasses import fields

import pytest
from ray.llm._internal.serve.core.configs.accelerators import CPUConfig, GPUAccelerator, GPUConfig
from ray.llm._internal.serve.core.server.llm_server import (
    _merge_replica_actor_and_child_actor_bundles,
)
from ray.llm._internal.serve.engines.vllm.vllm_models import VLLMEngineConfig
from ray.serve._private.autoscaling_state import DeploymentAutoscalingState
from ray.serve._private.common import (
    DeploymentID,
    ReplicaID,
    ReplicaMetricReport,
    TimeStampedValue,
)
from ray.serve._private.config import DeploymentConfig
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy
from ray.serve.context import ReplicaContext
from ray.serve.llm import LLMConfig

from replicas.engine.executor import RAY_SERVE_LLM, accelerator_kind
from replicas.server.server import BrimfulServer
from replicas.server.vllm_engine import SLICE_OF_GPU
from serve_app.config import AUTOSCALING_POLICY, SERVER, ScalingConfig, ray_llm_config
from serve_app.scaling.reading import Ages, read_fleet

ENTRY = {
    "model_loading_config": {"model_id": "m", "model_source": "m"},
    "accelerator_config": {"kind": "cpu"},
    "placement_group_config": {"bundle_per_worker": {"CPU": 0.5}},
    "engine_kwargs": {"max_num_seqs": 8},
    "deployment_config": {"autoscaling_config": {"min_replicas": 1, "max_replicas": 2}},
    "batching": {"policy": "static"},
}


@pytest.mark.parametrize(
    ("kind", "theirs"), [(CPUConfig(kind="cpu"), "mp"), (GPUConfig(kind="gpu"), "ray")]
)
def test_ray_serve_llm_still_chooses_the_executor_by_the_kind_of_accelerator(kind, theirs):
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
def test_the_kind_of_accelerator_is_inferred_as_ray_serve_llm_does(keys):
    entry = {"model_loading_config": ENTRY["model_loading_config"], **keys}
    inferred = LLMConfig.model_validate(entry).accelerator_config
    assert inferred is not None
    assert accelerator_kind(entry) == inferred.kind


def test_a_gpu_replica_holds_no_card_itself_and_its_bundle_lets_a_slice_go():
    assert GPUAccelerator().get_remote_options() == {"num_gpus": SLICE_OF_GPU}
    merged = _merge_replica_actor_and_child_actor_bundles(
        GPUAccelerator().default_bundles(num_devices=1), {"CPU": 1, "GPU": 0}
    )
    assert merged == [{"CPU": 1, "GPU": 1}]


def test_an_entry_with_our_blocks_becomes_a_valid_llm_config():
    config = LLMConfig.model_validate(ray_llm_config(ENTRY))
    assert config.server_cls is BrimfulServer
    assert SERVER.replace(":", ".") == f"{BrimfulServer.__module__}.{BrimfulServer.__name__}"
    engine = config.get_engine_config()
    assert engine.engine_kwargs["scheduler_cls"].endswith("DynamicBatchScheduler")
    assert "brimful" in engine.engine_kwargs["additional_config"]
    autoscaling = AutoscalingConfig(**config.deployment_config["autoscaling_config"])
    assert autoscaling.policy.policy_function == AUTOSCALING_POLICY


# --- autoscaling


def test_replicas_and_the_autoscaling_context_still_have_what_is_read():
    assert {"replica_id", "_deployment_config"} <= {field.name for field in fields(ReplicaContext)}
    assert DeploymentConfig().autoscaling_config is None
    assert DeploymentConfig(max_ongoing_requests=7).max_ongoing_requests == 7
    wanted = {"aggregated_metrics", "raw_metrics", "current_time", "current_num_replicas"}
    wanted |= {"target_num_replicas", "total_queued_requests", "total_num_requests", "config"}
    wanted |= {"capacity_adjusted_min_replicas", "capacity_adjusted_max_replicas"}
    assert wanted <= set(inspect.signature(AutoscalingContext.__init__).parameters)


def test_what_a_replica_says_reaches_the_policy_as_its_samples_and_their_mean():
    state = DeploymentAutoscalingState(DeploymentID(name="d", app_name="a"))
    one = ReplicaID("r", deployment_id=DeploymentID(name="d", app_name="a"))
    samples = [TimeStampedValue(time.time() - 2.0, 4.0), TimeStampedValue(time.time() - 1.0, 4.0)]
    state._config = AutoscalingConfig()
    state.update_running_replica_ids([one])
    report = ReplicaMetricReport(replica_id=one, metrics={"running": samples}, timestamp=1.0)
    state.record_request_metrics_for_replica(report)
    context = state.get_autoscaling_context(1)
    assert context.aggregated_metrics == {"running": {one: 4.0}}
    assert context.raw_metrics == {"running": {one: samples}}
    seen = read_fleet(context, Ages())
    assert (seen.current, seen.target, seen.minimum, seen.maximum) == (1, 1, 1, 1)


def test_the_policy_travels_by_value_to_a_process_without_this_project(tmp_path):
    policy = AutoscalingPolicy(
        policy_function=AUTOSCALING_POLICY, policy_kwargs=ScalingConfig().model_dump()
    )
    policy.serialize_policy()
    pickled = tmp_path / "policy"
    pickled.write_bytes(policy.get_serialized_policy_def())
    # -I: neither this directory nor PYTHONPATH; the import of the project is barred besides.
    script = (
        "import sys; sys.modules['serve_app'] = sys.modules['controller'] = None\n"
        "from ray import cloudpickle\n"
        f"cls = cloudpickle.loads(open({str(pickled)!r}, 'rb').read())\n"
        f"policy = cls(**{ScalingConfig().model_dump()!r})\n"
        "from types import SimpleNamespace as Context\n"
        "seen = Context(current_time=1.0, current_num_replicas=2, target_num_replicas=3)\n"
        "desired, state = policy(seen)\n"
        "assert (desired, state['brimful_reason']) == (3, 'unknown'), state\n"
        "assert 'vllm' not in sys.modules and 'torch' not in sys.modules\n"
    )
    command = [sys.executable, "-I", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- the settings by which a cluster on few cores looks after itself more seldom


# --- what the console reads of Ray Serve: its controller's account of every deployment
