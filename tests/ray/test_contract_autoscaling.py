"""What the autoscaling policy leans on in Ray 2.60: a change fails here, by name. No cluster."""

import inspect
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

from ray.experimental import internal_kv
from ray.serve._private.autoscaling_state import DeploymentAutoscalingState
from ray.serve._private.common import (
    DeploymentID,
    ReplicaID,
    ReplicaMetricReport,
    TimeStampedValue,
)
from ray.serve._private.config import DeploymentConfig
from ray.serve._private.metrics_utils import InMemoryMetricsStore
from ray.serve._private.replica import Replica
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy
from ray.serve.context import ReplicaContext

from replicas.server import BrimfulServer
from serve_app.autoscaling_block import AUTOSCALING_POLICY
from serve_app.config import ScalingConfig
from serve_app.scaling.reading import Ages, read_fleet


def test_serve_still_asks_replicas_for_autoscaling_stats() -> None:
    from ray.serve._private import replica

    assert "record_autoscaling_stats" in inspect.getsource(replica)
    assert inspect.iscoroutinefunction(BrimfulServer.record_autoscaling_stats)


def test_the_autoscaling_context_still_has_what_the_policy_reads() -> None:
    wanted = {"aggregated_metrics", "raw_metrics", "current_time", "current_num_replicas"}
    wanted |= {"target_num_replicas", "total_queued_requests", "total_num_requests", "config"}
    wanted |= {"capacity_adjusted_min_replicas", "capacity_adjusted_max_replicas"}
    assert wanted <= set(inspect.signature(AutoscalingContext.__init__).parameters)


def test_a_series_of_samples_still_ends_with_the_newest_and_its_time() -> None:
    store = InMemoryMetricsStore()
    for at_s in (2.0, 1.0):
        store.add_metrics_point({"running": at_s}, at_s)
    assert [point.timestamp for point in store.data["running"]] == [1.0, 2.0]


def test_what_a_replica_says_reaches_the_policy_as_its_samples_and_their_mean() -> None:
    state = DeploymentAutoscalingState(DeploymentID(name="d", app_name="a"))
    replica = ReplicaID("r", deployment_id=DeploymentID(name="d", app_name="a"))
    samples = [TimeStampedValue(time.time() - 2.0, 4.0), TimeStampedValue(time.time() - 1.0, 4.0)]
    state._config = AutoscalingConfig()
    state.update_running_replica_ids([replica])
    report = ReplicaMetricReport(replica_id=replica, metrics={"running": samples}, timestamp=1.0)
    state.record_request_metrics_for_replica(report)
    context = state.get_autoscaling_context(1)
    assert context.aggregated_metrics == {"running": {replica: 4.0}}
    assert context.raw_metrics == {"running": {replica: samples}}
    seen = read_fleet(context, Ages())
    assert (seen.current, seen.target, seen.minimum, seen.maximum) == (1, 1, 1, 1)


def test_the_policy_travels_by_value_to_a_process_without_this_project(tmp_path: Path) -> None:
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
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_replica_still_knows_the_options_that_its_deployment_has_now() -> None:
    assert "_deployment_config" in {field.name for field in fields(ReplicaContext)}
    assert DeploymentConfig().autoscaling_config is None
    assert DeploymentConfig(max_ongoing_requests=7).max_ongoing_requests == 7
    assert "_deployment_config=self._deployment_config" in inspect.getsource(Replica)


def test_the_clusters_store_still_takes_a_line_under_a_name() -> None:
    for name, first in (("put", ["key", "value"]), ("get", ["key"]), ("list", ["prefix"])):
        call = getattr(internal_kv, f"_internal_kv_{name}")
        parameters = list(inspect.signature(call).parameters)
        assert parameters[: len(first)] == first and "namespace" in parameters
