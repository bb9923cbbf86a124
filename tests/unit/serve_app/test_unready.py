"""What ``brimful status`` says of deployments that are not up, by Ray Serve's own status."""

import pytest
from ray.serve.schema import (
    ApplicationStatus,
    ApplicationStatusOverview,
    DeploymentStatus,
    DeploymentStatusOverview,
    DeploymentStatusTrigger,
    ReplicaState,
)

from controller.errors import BrimfulError
from serve_app import status
from serve_app.unready import unready_lines
from tests.unit.serve_app.snapshots import snapshot_of

WAITS = (
    "Deployment 'BrimfulServer:m' in application 'llm' has 1 replicas that have taken more than 30s"
    ' to be scheduled. Resources required for each replica: [{"GPU": 8}]'
)


def application(
    state: DeploymentStatus, message: str, replicas: dict[ReplicaState, int]
) -> ApplicationStatusOverview:
    one = DeploymentStatusOverview(
        status=state,
        status_trigger=DeploymentStatusTrigger.CONFIG_UPDATE_STARTED,
        replica_states=replicas,
        message=message,
    )
    return ApplicationStatusOverview(ApplicationStatus.DEPLOYING, "", 0.0, {"BrimfulServer:m": one})


def test_a_deployment_without_a_replica_is_told_with_what_it_waits_for() -> None:
    starting = application(DeploymentStatus.UPDATING, WAITS, {ReplicaState.STARTING: 1})
    assert unready_lines({"llm": starting}) == [
        f"BrimfulServer:m of llm: UPDATING, 0 of 1 replicas run: {WAITS}"
    ]


def test_a_healthy_deployment_is_not_told() -> None:
    sound = application(DeploymentStatus.HEALTHY, "", {ReplicaState.RUNNING: 1})
    sound.status = ApplicationStatus.RUNNING
    assert unready_lines({"llm": sound}) == []


def test_an_application_that_was_not_built_is_told_with_the_reason() -> None:
    failed = ApplicationStatusOverview(ApplicationStatus.DEPLOY_FAILED, "no\nmodule", 0.0, {})
    assert unready_lines({"llm": failed}) == ["llm: DEPLOY_FAILED: no module"]


def test_before_the_first_replica_the_error_says_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_yet() -> None:
        raise BrimfulError("no batch controller here")

    monkeypatch.setattr(status, "read_unready", lambda: ["m of llm: UPDATING"])
    monkeypatch.setattr(status, "read_snapshot", none_yet)
    with pytest.raises(BrimfulError, match="no batch controller here\nm of llm: UPDATING"):
        status.read()


def test_beside_replicas_it_is_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "read_unready", lambda: ["m of llm: UPDATING"])
    monkeypatch.setattr(status, "read_snapshot", snapshot_of)
    known = status.read()
    assert status.to_json(known)["unready"] == ["m of llm: UPDATING"]
    status.print_status(known, wide=False)
    assert "m of llm: UPDATING" in capsys.readouterr().out.splitlines()
