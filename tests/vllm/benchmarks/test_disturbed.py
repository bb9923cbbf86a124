"""``make disturbed`` on a few requests: searched, compared, and why a cap may be left out."""

from benchmarks.disturbed.compared import bounds_of
from benchmarks.disturbed.replays import Task, run
from benchmarks.disturbed.rows import DISTURBED, LOADS, Row
from benchmarks.disturbed.search import STATIC

ROW = Row(LOADS[0], DISTURBED[-1])
FEW = 0.05  # of the requests


def test_policies_of_a_row_are_compared_on_the_same_requests() -> None:
    static, again, ours = (run(Task(ROW, spec, 1, FEW)) for spec in (STATIC, STATIC, "adaptive"))
    assert static == again
    assert static.tokens_per_s > 0 < ours.tokens_per_s
    (bound,) = bounds_of(ROW, (1,))
    assert bound.ttft_s < static.ttft_s + ours.ttft_s
