"""Ray Serve's account of itself, read for what is ours."""

from enum import Enum
from typing import Any

from serve_app.console.deployments import Deployment, deployments_of


class Status(str, Enum):  # noqa: UP042
    """As Ray Serve's own: a string that prints as something else."""

    HEALTHY = "HEALTHY"
    RUNNING = "RUNNING"
    STARTING = "STARTING"


def deployment(name: str, wanted: int, *states: Status) -> dict[str, Any]:
    replicas = [{"replica_id": f"r{n}", "state": state} for n, state in enumerate(states)]
    return {
        "name": name,
        "status": Status.HEALTHY,
        "target_num_replicas": wanted,
        "replicas": replicas,
    }


def details(**applications: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "applications": {
            app: {"deployments": {one["name"]: one for one in known}}
            for app, known in applications.items()
        }
    }


def test_our_servers_are_found_and_the_rest_of_an_application_is_left_out() -> None:
    found = deployments_of(
        details(
            llm=[
                deployment("BrimfulServer:llama--8b", 3, Status.RUNNING, Status.STARTING),
                deployment("LLMRouter:llama--8b", 1, Status.RUNNING),
            ],
            console=[deployment("Console", 1, Status.RUNNING)],
            tried=[deployment("EmulatedServer:a:b", 0)],
        )
    )

    assert found == [
        Deployment(
            application="llm",
            name="BrimfulServer:llama--8b",
            model="llama--8b",
            emulated=False,
            status="HEALTHY",
            running=1,
            wanted=3,
            replica_ids=("r0", "r1"),
        ),
        Deployment(
            application="tried",
            name="EmulatedServer:a:b",
            model="a:b",
            emulated=True,
            status="HEALTHY",
            running=0,
            wanted=0,
            replica_ids=(),
        ),
    ]
