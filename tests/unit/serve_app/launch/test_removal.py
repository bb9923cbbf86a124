"""Applications that are waited for until they are gone."""

from typing import Any

import pytest

from controller.errors import BrimfulError
from serve_app.launch import stop
from serve_app.launch.stop import wait_gone

OTHER = {"other": {"status": "RUNNING", "deployments": {}}}
BOTH = {**OTHER, "llm": {"status": "DELETING", "deployments": {}}}


class Reads:
    """A cluster that answers one read after the other; None: it does not."""

    def __init__(self, *answers: dict[str, Any] | None) -> None:
        self._answers = list(answers)

    def applications(self) -> dict[str, Any]:
        answer = self._answers.pop(0)
        if answer is None:
            raise BrimfulError("Ray Serve does not answer")
        return answer


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop, "POLL_S", 0)


def test_reads_that_fail_do_not_end_it() -> None:
    said: list[str] = []
    left = wait_gone(Reads(None, BOTH, None, None, BOTH, OTHER), ["llm"], said.append)
    assert left == OTHER
    assert said == ["llm deleting (no replica)"]
