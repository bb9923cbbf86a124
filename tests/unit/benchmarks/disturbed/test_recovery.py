"""How soon first tokens come as before, once a disturbance is over."""

import pytest

from benchmarks.disturbed import recovery
from benchmarks.disturbed.recovery import Task, measure
from benchmarks.disturbed.rows import all_rows

BY_ID = {row.id: row for row in all_rows()}


def test_a_queue_that_grew_has_to_go_first_and_one_that_did_not_is_normal_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery, "BEGIN_S", 60.0)
    monkeypatch.setattr(recovery, "AFTER_S", 60.0)
    half_speed = BY_ID["257-62@7 half-speed"]
    never_back = "static:max_num_seqs=18,max_num_batched_tokens=60"  # carries little more than 7/s
    queued = measure(Task(half_speed, never_back, 30.0, 1))
    assert measure(Task(half_speed, "static:max_num_batched_tokens=512", 30.0, 1)) < queued
    assert 0 < queued <= recovery.AFTER_S
