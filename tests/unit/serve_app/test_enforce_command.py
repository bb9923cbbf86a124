"""``brimful enforce`` as a command: its arguments, its exit status, what scripts get."""

import argparse
import json

import pytest

from serve_app import enforce
from tests.unit.serve_app.test_enforce import fleet_of


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controllers have been there for long."""
    monkeypatch.setattr(enforce, "SETTLED_S", 0.0)


def arguments(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    enforce.add_arguments(parser)
    return parser.parse_args(argv)


@pytest.mark.parametrize(("arrives", "status"), [(True, 0), (False, 1)])
def test_the_exit_status_says_whether_all_confirmed_and_json_says_who(
    arrives: bool,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fleet = fleet_of("a1")
    fleet.members["a1"].reports_arrive = arrives
    monkeypatch.setattr(enforce, "connect", lambda address: fleet.calls())
    monkeypatch.setitem(enforce.switch.__kwdefaults__, "sleep", lambda _: fleet.period())
    assert enforce.run(arguments("off", "--json", "--wait", "0.05")) == status
    told = json.loads(capsys.readouterr().out)
    assert (told["enforce"], told["group"], told["confirmed"]) == (False, None, arrives)
    (replica,) = told["replicas"]
    assert (replica["replica"], replica["confirmed"], replica["enforced"]) == (
        "a1",
        arrives,
        not arrives,
    )


@pytest.mark.parametrize("wait", ["nan", "inf", "-1", "soon"])
def test_a_wait_that_is_none_is_refused(wait: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments("off", "--wait", wait)
    assert ended.value.code == 2
    assert f"--wait: {wait!r} is not allowed: a finite number from 0" in capsys.readouterr().err
