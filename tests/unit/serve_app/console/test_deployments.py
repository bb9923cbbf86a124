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
    known = {"name": name, "status": Status.HEALTHY, "replicas": replicas}
    return {"deployments": {name: {**known, "target_num_replicas": wanted}}}


def test_our_servers_are_found_and_the_rest_of_an_application_is_left_out() -> None:
    ours, router = "BrimfulServer:llama--8b", "LLMRouter:llama--8b"
    llm = deployment(ours, 3, Status.RUNNING, Status.STARTING)
    llm["deployments"] |= deployment(router, 1, Status.RUNNING)["deployments"]
    tried = deployment("EmulatedServer:a:b", 0)
    console = deployment("Console", 1, Status.RUNNING)
    assert deployments_of({"applications": {"llm": llm, "console": console, "tried": tried}}) == [
        Deployment("llm", ours, "llama--8b", False, "HEALTHY", 1, 3, ("r0", "r1")),
        Deployment("tried", "EmulatedServer:a:b", "a:b", True, "HEALTHY", 0, 0, ()),
    ]
