"""The benchmark of the scheduler's own code counts that code alone and says it in one JSON line."""

import json

import pytest

from benchmarks.cost import scheduler as bench_scheduler
from benchmarks.cost.full_batch import SETTINGS, step_delay_us
from benchmarks.cost.scheduler import Engine, TimedScheduler


def test_own_code_is_a_part_of_the_step_and_vllms_is_not_in_it():
    engine = Engine(TimedScheduler, 64)
    watch = engine.scheduler.watch
    engine.step()
    before_ns = watch.own_ns

    whole_ns = sum(engine.step() for _ in range(20))

    assert 0 < watch.own_ns - before_ns < whole_ns / 2


def test_the_last_line_is_one_json_object(monkeypatch, capsys):
    for name, small in (("SIZES", (256,)), ("STEPS", 31), ("WARM_UP", 5), ("BLOCKS", 2)):
        monkeypatch.setattr(bench_scheduler, name, small)

    bench_scheduler.main()

    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = {row["id"]: row for row in last["rows"]}
    assert last["bench"] == "scheduler"
    assert rows["own_code_median_us_256"]["target"] == 100
    assert all(set(row) == {"id", "value", "unit", "target"} for row in last["rows"])
    full = [
        f"own_code_full_{name}_{figure}_us_256" for name in SETTINGS for figure in ("median", "p99")
    ]
    delays = [f"step_delay_{name}_p99_us_256" for name in ("leased", "inline")]
    aimed = [i for i, row in rows.items() if row["target"] is not None]
    assert aimed == ["own_code_median_us_256", *full, *delays]


@pytest.mark.parametrize("leased", [True, False])
def test_a_step_is_delayed_by_reports_and_by_the_law(leased):
    delays_us = sorted(step_delay_us(16, range(120), leased=leased))
    # Of 30 steps of 16 ms one has an exchange, or a decision, before it.
    assert delays_us[-3] > 2 * delays_us[60]
