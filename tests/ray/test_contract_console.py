"""What the console reads of Ray Serve: its controller's account of every deployment."""

import inspect

from ray.serve._private.common import (
    DeploymentID,
    ReplicaID,
    RequestMetadata,
    RunningReplicaInfo,
)
from ray.serve._private.controller import ServeController
from ray.serve._private.replica import ReplicaActor
from ray.serve._private.request_router.replica_wrapper import ActorReplicaWrapper
from ray.serve.context import _get_global_client
from ray.serve.schema import DeploymentDetails, ReplicaDetails, ReplicaState, ServeInstanceDetails

from serve_app.config import EMULATED_SERVER, SERVER
from serve_app.console.deployments import EMULATED, PLAIN


def test_ray_serve_still_says_of_each_deployment_what_is_shown() -> None:
    assert "applications" in ServeInstanceDetails.model_fields
    shown = {"name", "status", "target_num_replicas", "replicas"}
    assert shown <= DeploymentDetails.model_fields.keys()
    assert {"replica_id", "state"} <= ReplicaDetails.model_fields.keys()
    assert ReplicaState.RUNNING == "RUNNING"


def test_its_controller_is_asked_by_a_call_of_its_own() -> None:
    # The client's own method waits for the answer, and would hold the event loop up.
    source = inspect.getsource(ServeController.get_serve_instance_details)
    assert source.count("_get_user_facing_json_serializable_dict") == 1
    assert "_controller" in inspect.getsource(
        _get_global_client.__globals__["ServeControllerClient"]
    )


def test_a_deployment_is_still_named_by_its_servers_class() -> None:
    assert (PLAIN, EMULATED) == ("BrimfulServer:", "EmulatedServer:")
    assert all(path.count(":") == 1 for path in (SERVER, EMULATED_SERVER))


def test_one_replica_is_called_as_ray_serves_handles_call_it() -> None:
    # Replicas are actors by this name, and a handle's call is one of theirs with these fields.
    names = inspect.getsource(RunningReplicaInfo.get_actor_handle)
    assert "ray.get_actor(self.actor_name, namespace=SERVE_NAMESPACE)" in names
    where = ReplicaID("x7k2", DeploymentID("BrimfulServer:m", "llm"))
    assert where.to_full_id_str() == "SERVE_REPLICA::llm#BrimfulServer:m#x7k2"
    assert ReplicaID.from_full_id_str(where.to_full_id_str()) == where
    assert "self._actor_handle.handle_request" in inspect.getsource(ActorReplicaWrapper)
    fields = RequestMetadata.__dataclass_fields__
    assert {"request_id", "internal_request_id", "call_method", "app_name"} <= fields.keys()
    assert "pickle.loads(pickled_request_metadata)" in inspect.getsource(
        ReplicaActor._preprocess_request_args
    )
