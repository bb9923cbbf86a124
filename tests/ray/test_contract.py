"""Everything of Ray 2.60 that is leaned on and not promised: a change fails here, by name.

No cluster is started: Python's show in their modules, those of C++ in the raylet's binary.
"""

import inspect
import mmap
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import ray
from ray._private import ray_constants
from ray._private.node import Node
from ray.dashboard.modules.aggregator import aggregator_agent
from ray.dashboard.modules.event import event_consts
from ray.dashboard.modules.reporter import reporter_consts
from ray.experimental import internal_kv
from ray.llm._internal.serve import constants as llm_constants
from ray.llm._internal.serve.core.configs.accelerators import CPUConfig, GPUAccelerator, GPUConfig
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
from ray.scripts.scripts import start
from ray.serve._private import constants, replica
from ray.serve._private.autoscaling_state import DeploymentAutoscalingState
from ray.serve._private.common import (
    DeploymentID,
    ReplicaID,
    ReplicaMetricReport,
    RequestMetadata,
    RunningReplicaInfo,
    TimeStampedValue,
)
from ray.serve._private.config import DeploymentConfig
from ray.serve._private.controller import ServeController
from ray.serve._private.deployment_scheduler import DeploymentScheduler
from ray.serve._private.deployment_state import DeploymentState, ReplicaStateContainer
from ray.serve._private.deployment_state import ReplicaState as DeployedState
from ray.serve._private.metrics_utils import InMemoryMetricsStore
from ray.serve._private.replica import Replica, ReplicaActor
from ray.serve._private.request_router.replica_wrapper import ActorReplicaWrapper
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy
from ray.serve.context import ReplicaContext, _get_global_client
from ray.serve.llm import LLMConfig
from ray.serve.schema import DeploymentDetails, ReplicaDetails, ReplicaState, ServeInstanceDetails

from benchmarks.path.stacks import AS_SHIPPED, FEW_CORES
from replicas.engine.executor import RAY_SERVE_LLM, accelerator_kind
from replicas.server.server import BrimfulServer
from replicas.server.vllm_engine import SLICE_OF_GPU
from serve_app.autoscaling_block import AUTOSCALING_POLICY
from serve_app.config import EMULATED_SERVER, SERVER, ScalingConfig, ray_llm_config
from serve_app.console.deployments import EMULATED, PLAIN
from serve_app.launch.local_cluster import DRAIN, ENVIRONMENT, SELDOM
from serve_app.scaling.reading import Ages, read_fleet

ENTRY = {
    "model_loading_config": {"model_id": "m", "model_source": "m"},
    "accelerator_config": {"kind": "cpu"},
    "placement_group_config": {"bundle_per_worker": {"CPU": 0.5}},
    "engine_kwargs": {"max_num_seqs": 8},
    "deployment_config": {"autoscaling_config": {"min_replicas": 1, "max_replicas": 2}},
    "batching": {"policy": "static"},
}
# What stands in Ray's source, by what leans on it.
SOURCES: dict[str, tuple[Any, list[str]]] = {
    "the server class starts its engine in start": (
        LLMServer,
        ["await self.start()", "self._llm_config = llm_config"],
    ),
    "the engine keeps its client under this name": (
        VLLMEngine.start,
        ["self._engine_client = self._start_async_llm_engine("],
    ),
    "the engine is started by a method that goes by the configured executor": (
        VLLMEngine._start_async_llm_engine,
        ["Executor.get_class(vllm_engine_config)"],
    ),
    "the server asks for an engine class": (
        LLMServer._get_default_engine_class,
        ["return self._default_engine_cls"],
    ),
    "direct streaming goes by its variable": (
        llm_constants,
        ['"RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING"'],
    ),
    "a callback's paths become the model's": (
        initialize_node,
        ["get_engine_config().hf_model_id = paths[0]"],
    ),
    "Serve asks replicas for autoscaling stats": (replica, ["record_autoscaling_stats"]),
    "a replica knows the options that its deployment has now": (
        Replica,
        ["_deployment_config=self._deployment_config"],
    ),
    "a node that is ended drains for as long as it is told": (
        Node,
        ["timeout_s = ray_constants.RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"],
    ),
    "the time of that drain has a variable": (ray_constants, [DRAIN]),
    # The client's own method waits for the answer, and would hold the event loop up.
    "Serve's controller is asked by a call of its own": (
        _get_global_client.__globals__["ServeControllerClient"],
        ["_controller"],
    ),
    # Replicas are actors by this name, and a handle's call is one of theirs.
    "one replica is an actor of a known name": (
        RunningReplicaInfo.get_actor_handle,
        ["ray.get_actor(self.actor_name, namespace=SERVE_NAMESPACE)"],
    ),
    "a handle calls handle_request": (ActorReplicaWrapper, ["self._actor_handle.handle_request"]),
    "a call brings its metadata pickled": (
        ReplicaActor._preprocess_request_args,
        ["pickle.loads(pickled_request_metadata)"],
    ),
}


@pytest.mark.parametrize("what", SOURCES)
def test_what_is_leaned_on_stands_in_the_source(what):
    where, parts = SOURCES[what]
    source = inspect.getsource(where)
    assert [part for part in parts if part not in source] == []


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (
            VLLMEngine._start_async_llm_engine,
            ["self", "vllm_engine_args", "vllm_engine_config", "placement_group"],
        ),
        (initialize_remote_node, ["llm_config"]),
        (internal_kv._internal_kv_put, ["key", "value", ..., "namespace"]),
        (internal_kv._internal_kv_get, ["key", ..., "namespace"]),
        (internal_kv._internal_kv_list, ["prefix", ..., "namespace"]),
    ],
)
def test_what_is_called_still_takes_these(call, names):
    parameters = list(inspect.signature(call).parameters)
    if ... in names:
        first = names[: names.index(...)]
        assert parameters[: len(first)] == first and names[-1] in parameters
    else:
        assert parameters == names


def test_what_is_overridden_is_asynchronous():
    for method in (LLMServer.start, LLMServer.check_health, BrimfulServer.record_autoscaling_stats):
        assert inspect.iscoroutinefunction(method)


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


def test_the_engine_is_still_started_with_these_steps_and_no_others():
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


def test_a_callback_may_still_fetch_the_model_files_in_the_place_of_ray_serve_llms_tasks():
    source = inspect.getsource(VLLMEngine.start)
    before, _, after = source.partition("if callback.ctx.run_init_node:")
    assert 'run_callback("on_before_node_init")' in before
    assert after.lstrip().startswith("await initialize_node(self.llm_config)")


# --- autoscaling


def test_replicas_and_the_autoscaling_context_still_have_what_is_read():
    assert {"replica_id", "_deployment_config"} <= {field.name for field in fields(ReplicaContext)}
    assert DeploymentConfig().autoscaling_config is None
    assert DeploymentConfig(max_ongoing_requests=7).max_ongoing_requests == 7
    wanted = {"aggregated_metrics", "raw_metrics", "current_time", "current_num_replicas"}
    wanted |= {"target_num_replicas", "total_queued_requests", "total_num_requests", "config"}
    wanted |= {"capacity_adjusted_min_replicas", "capacity_adjusted_max_replicas"}
    assert wanted <= set(inspect.signature(AutoscalingContext.__init__).parameters)


def test_a_series_of_samples_still_ends_with_the_newest_and_its_time():
    store = InMemoryMetricsStore()
    for at_s in (2.0, 1.0):
        store.add_metrics_point({"running": at_s}, at_s)
    assert [point.timestamp for point in store.data["running"]] == [1.0, 2.0]


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

PYTHON = {
    "REPORTER_UPDATE_INTERVAL_MS": reporter_consts.REPORTER_UPDATE_INTERVAL_MS,
    "EVENT_AGENT_REPORT_INTERVAL_SECONDS": event_consts.EVENT_AGENT_REPORT_INTERVAL_SECONDS,
    "RAY_DASHBOARD_AGGREGATOR_AGENT_CHECK_MAIN_THREAD_LIVENESS_INTERVAL_SECONDS": (
        aggregator_agent.CHECK_MAIN_THREAD_LIVENESS_INTERVAL_SECONDS
    ),
}


def test_what_a_local_cluster_sets_is_set_back_for_ray_as_shipped():
    assert SELDOM.items() <= ENVIRONMENT.items()
    assert SELDOM.keys() <= AS_SHIPPED.keys()


@pytest.mark.parametrize("name", PYTHON)
def test_ray_still_reads_it_and_has_it_as_we_say(name):
    assert float(AS_SHIPPED[name]) == PYTHON[name]
    assert float(SELDOM[name]) > PYTHON[name]


def test_rays_own_binary_still_knows_the_others():
    binary = Path(ray.__file__).parent / "core/src/ray/raylet/raylet"
    with binary.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        for name in SELDOM.keys() - PYTHON.keys():
            assert text.find(name.removeprefix("RAY_").encode()) >= 0, name


def test_the_control_loop_waits_a_tenth_a_drain_half_a_minute_and_logs_may_be_read_by_nobody():
    assert list(FEW_CORES) == ["RAY_SERVE_CONTROL_LOOP_INTERVAL_S"]
    assert constants.CONTROL_LOOP_INTERVAL_S == 0.1
    assert ray_constants.RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S == 30
    assert "include_log_monitor" in {option.name for option in start.params}


# --- what the console reads of Ray Serve: its controller's account of every deployment


def test_ray_serve_still_says_of_each_deployment_what_is_shown():
    assert "applications" in ServeInstanceDetails.model_fields
    shown = {"name", "status", "target_num_replicas", "replicas"}
    assert shown <= DeploymentDetails.model_fields.keys()
    assert {"replica_id", "state"} <= ReplicaDetails.model_fields.keys()
    assert ReplicaState.RUNNING == "RUNNING"
    source = inspect.getsource(ServeController.get_serve_instance_details)
    assert source.count("_get_user_facing_json_serializable_dict") == 1


def test_a_replica_whose_node_is_to_go_is_replaced_without_being_asked_for():
    """Serve counts it as none of those it should have, and the policy among those that run."""
    replicas = ReplicaStateContainer()
    for state in (DeployedState.RUNNING, DeployedState.STARTING, DeployedState.PENDING_MIGRATION):
        replicas.add(state, MagicMock(actor_details=SimpleNamespace(state=None)))
    state = SimpleNamespace(
        _replicas=replicas, _target_state=SimpleNamespace(target_num_replicas=3)
    )
    assert DeploymentState._get_target_replica_delta(state) == 1
    assert len(DeploymentState.get_running_replica_ids(state)) == 2


def test_of_nodes_with_as_many_replicas_those_of_the_oldest_are_given_back_first():
    """So a lasting worker has an anchor beside its replica (``serve_app.anchor``)."""

    def stopped(anchored: list[str]) -> set[str]:
        scheduler = object.__new__(DeploymentScheduler)
        for name in ("_pending_replicas", "_launching_replicas", "_recovering_replicas"):
            setattr(scheduler, name, defaultdict(dict))
        told = SimpleNamespace(label_selector=None, bundle_label_selector=None)
        scheduler._deployments, scheduler._head_node_id = {"llm": told}, "head"
        scheduler._cluster_node_info_cache = MagicMock()
        scheduler._running_replicas = {
            "llm": {f"of-{node}": node for node in ("lasting", "spot", "newer-spot")},
            "anchor": {f"anchor-{node}": node for node in anchored},
        }
        return scheduler._get_replicas_to_stop("llm", 1)

    assert stopped([]) == {"of-lasting"}
    assert stopped(["lasting"]) == {"of-spot"}


def test_deployments_and_replicas_still_have_these_names():
    assert (PLAIN, EMULATED) == ("BrimfulServer:", "EmulatedServer:")
    assert all(path.count(":") == 1 for path in (SERVER, EMULATED_SERVER))
    where = ReplicaID("x7k2", DeploymentID("BrimfulServer:m", "llm"))
    assert where.to_full_id_str() == "SERVE_REPLICA::llm#BrimfulServer:m#x7k2"
    assert ReplicaID.from_full_id_str(where.to_full_id_str()) == where
    known = RequestMetadata.__dataclass_fields__.keys()
    assert {"request_id", "internal_request_id", "call_method", "app_name"} <= known
