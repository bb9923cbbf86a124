"""``brimful status``: the controller's knowledge as tables, as JSON, and again and again."""

from typing import Any

import pytest

from controller.errors import BrimfulError
from serve_app.snapshot import replicas_of
from serve_app.status import print_status, table_of, watch
from tests.builders import batching, histogram_of, report
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


def test_an_engine_that_died_is_told_with_what_became_of_its_requests(capsys):
    outcomes = {"moved": 9, "moving": 2, "cannot": 1}
    died = {"replica": "r1", "group": "g", "outcomes": outcomes, "gap_s": 2.0, "died_s_ago": 30.2}
    text = shown(capsys, {**fleet(), "deaths": [died]}, wide=False)
    assert (
        "r1 of g: its engine died 30 s ago; of its requests 9 moved to other replicas, 1 ended with"
        " an error, 2 are on their way"
    ) in " ".join(text.split())
