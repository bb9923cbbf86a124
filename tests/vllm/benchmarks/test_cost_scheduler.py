"""The bench of scheduler overhead ends with one JSON line."""

import json

from benchmarks.cost import scheduler as bench_scheduler
from benchmarks.cost.full_batch import SETTINGS


def test_the_last_line_is_one_json_object(monkeypatch, capsys):
    for name, small in (("SIZES", (256,)), ("STEPS", 31)):
        monkeypatch.setattr(bench_scheduler, name, small)

    bench_scheduler.main()

    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = {row["id"]: row for row in last["rows"]}
    assert last["bench"] == "scheduler"
    assert all(set(row) == {"id", "value", "unit", "target"} for row in last["rows"])
    full = [
        f"overhead_full_{name}_{figure}_us_256" for name in SETTINGS for figure in ("median", "p99")
    ]
    delays = [f"step_delay_{name}_p99_us_256" for name in ("leased", "inline")]
    aimed = [i for i, row in rows.items() if row["target"] is not None]
    assert aimed == [*full, *delays]
