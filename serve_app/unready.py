"""Deployments that Ray Serve has not started, and its message on what they wait for."""

from typing import Any

# Serve's own states in which nothing is pending.
SOUND = ("HEALTHY", "RUNNING")
LONGEST = 600  # characters of Serve's message


def unready_lines(applications: dict[str, Any]) -> list[str]:
    """A sentence for each deployment that is not healthy, and each application that failed.

    Args:
        applications: ``serve.status().applications``.
    """
    found = []
    for name, application in sorted(applications.items()):
        status = str(application.status.value)
        waiting = [
            _line(name, deployment, one)
            for deployment, one in sorted(application.deployments.items())
            if str(one.status.value) not in SOUND
        ]
        if not waiting and status not in SOUND:
            waiting = [f"{name}: {status}{_said(application.message)}"]
        found += waiting
    return found


def _line(application: str, deployment: str, one: Any) -> str:
    states = {str(state.value): count for state, count in one.replica_states.items() if count}
    running, total = states.get("RUNNING", 0), sum(states.values())
    return (
        f"{deployment} of {application}: {one.status.value}, {running} of {total} replicas run"
        f"{_said(one.message)}"
    )


def _said(message: str) -> str:
    text = " ".join(message.split())[:LONGEST]
    return f": {text}" if text else ""


def read_unready() -> list[str]:
    """``unready_lines`` of the connected cluster; empty if Serve does not run."""
    from ray import serve
    from ray.exceptions import RayError

    try:
        return unready_lines(serve.status().applications)
    except (RayError, RuntimeError, OSError):  # Serve's controller is away for the moment
        return []
