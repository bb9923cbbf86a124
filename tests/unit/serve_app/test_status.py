"""``brimful status``: the controller's knowledge as tables, as JSON, and again and again."""

import json
from dataclasses import replace
from typing import Any

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
from controller.fleet.loop import ControlLoop
from serve_app import status
from serve_app.snapshot import replicas_of, switched_off
from serve_app.status import print_status, table_of, to_json, watch
from serve_app.unready import unready_lines
from tests.builders import batching, histogram_of, limits, report
from tests.unit.serve_app.snapshots import LONG_GROUP, LONG_REPLICA, fleet, snapshot_of

HEARD = (report(itl=histogram_of([0.02])), batching())


def row(*, wide: bool = False, **changes: Any) -> list[str]:
    """The one row of a loop with the report of one replica, by column."""
    snapshot = snapshot_of(HEARD)
    snapshot["groups"]["g"]["replicas"]["r1"].update(changes)
    shown = table_of(replicas_of(snapshot), wide=wide)
    return [str(next(iter(column.cells))) for column in shown.columns]


def test_a_replica_is_one_row():
    assert row() == ["r1", "on", "bound", "256", "10", "5", "10%", "21.1", "-"]
    wide = "21.1 22.4 - - 0% - 2.0 5 0 0 2.5 -"
    assert row(wide=True)[8:] == wide.split()


@pytest.mark.parametrize(
    ("changes", "control"),
    [
        ({"report": report(mode="fallback")}, "fallback"),
        ({"report": report(enforced=False)}, "off"),
        ({"report": report(enforced=False), "limits": limits(enforce=False)}, "advice"),
    ],
)
def test_who_controls_it(changes, control):
    assert row(**changes)[1] == control


def test_it_says_for_which_groups_control_is_switched_off():
    """For all: also where no replica is there."""
    said = "Control is switched off for {}; `brimful enforce on` ends that."
    for groups in (("a", "b"), ()):
        loop = ControlLoop()
        for group in groups:
            loop.exchange(report(group=group), batching(), 0.0)
        assert switched_off(loop.snapshot(0.0)) is None
        loop.switch(enforce=False, group="b", unix_s=1.0)
        assert switched_off(loop.snapshot(0.0)) == (said.format("b") if groups else None)
        loop.switch(enforce=False, group=None, unix_s=1.0)
        assert switched_off(loop.snapshot(0.0)) == said.format("all groups")
        loop.switch(enforce=True, group=None, unix_s=1.0)
        assert switched_off(loop.snapshot(0.0)) is None


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def shown(capsys: pytest.CaptureFixture[str], snapshot: dict[str, Any], *, wide: bool) -> str:
    """What is printed in 80 columns."""
    print_status(snapshot, wide=wide)
    return capsys.readouterr().out


def test_in_80_columns_nothing_is_cut(capsys):
    text = shown(capsys, fleet(later_s=7.0), wide=False)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for replica in replicas_of(fleet()):
        for word in (str(replica.max_running), str(replica.waiting), replica.control):
            assert word in text
    joined = "".join(text.split())
    assert LONG_REPLICA in joined
    assert LONG_GROUP in joined
    assert "noreportfor7s" in joined
    assert "Controlisswitchedoff" in joined


def test_a_replica_whose_report_is_refused_is_named_with_the_reason(capsys):
    refused = {"group": "g", "replica": "r9", "reason": "unknown key 'x'", "refused_s_ago": 3.2}
    for exchanges in ((), (HEARD,)):
        known = snapshot_of(*exchanges, refused=[refused])
        text = " ".join(shown(capsys, known, wide=False).split())
        assert "r9 of g: its report was refused 3 s ago" in text
        assert "unknown key 'x'" in text
        assert "No replica has reported yet." not in text
        assert to_json(known)["refused"] == [refused]


def test_a_replica_that_refuses_its_live_configuration_is_named_with_the_reason(capsys):
    reason = "user_config.batching.max_running.max: 100 is above max_num_seqs=64"
    told, config = HEARD
    refusing = replace(told, replica_id="r2", config_refused=reason)
    known = snapshot_of((refusing, config), HEARD)
    text = " ".join(shown(capsys, known, wide=False).split())
    assert text.count(f"its user_config is refused, what held before holds on: {reason}") == 1
    assert [one["config_refused"] for one in to_json(known)["replicas"]].count(reason) == 1


def test_scripts_get_a_flat_object_per_replica():
    known = json.loads(json.dumps(to_json(snapshot_of(HEARD))))
    assert known["version"] == "0.1.0+0a1b2c3d"
    (replica,) = known["replicas"]
    assert replica["group"] == "g"
    assert replica["set_by"] == "bound"
    assert replica["reported_s_ago"] == 2.5
    assert replica["itl_p99_ms"] == pytest.approx(21.1, abs=0.1)


def test_watching_goes_on_while_the_controller_is_away(capsys):
    answers = iter([snapshot_of(HEARD), None, snapshot_of(HEARD)])
    slept, seen = [], []

    def read() -> dict[str, Any]:
        answer = next(answers)
        if answer is None:
            raise BrimfulError("it is gone")
        return answer

    def sleep(period_s: float) -> None:
        slept.append(period_s)
        if len(slept) == 3:
            raise KeyboardInterrupt

    watch(read, seen.append, 2.0, sleep)
    assert slept == [2.0, 2.0, 2.0]
    assert len(seen) == 2
    assert capsys.readouterr().err == "error: it is gone\n"


# --- deployments that are not up, by Ray Serve's own status

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


def test_a_deployment_without_a_replica_is_told_with_what_it_waits_for():
    starting = application(DeploymentStatus.UPDATING, WAITS, {ReplicaState.STARTING: 1})
    assert unready_lines({"llm": starting}) == [
        f"BrimfulServer:m of llm: UPDATING, 0 of 1 replicas run: {WAITS}"
    ]


def test_an_application_that_was_not_built_is_told_with_the_reason():
    failed = ApplicationStatusOverview(ApplicationStatus.DEPLOY_FAILED, "no\nmodule", 0.0, {})
    assert unready_lines({"llm": failed}) == ["llm: DEPLOY_FAILED: no module"]


def test_before_the_first_replica_the_error_says_what_is_waited_for(monkeypatch):
    def none_yet() -> None:
        raise BrimfulError("no batch controller here")

    monkeypatch.setattr(status, "read_unready", lambda: ["m of llm: UPDATING"])
    monkeypatch.setattr(status, "read_snapshot", none_yet)
    with pytest.raises(BrimfulError, match="no batch controller here\nm of llm: UPDATING"):
        status.read()
