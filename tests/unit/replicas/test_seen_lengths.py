"""What a replica tells of lengths: finished requests' alone for the paper, all of them else."""

import numpy as np
import pytest

from controller.models.lengths import REQUESTS_KEPT
from controller.records import EngineState
from replicas.engine.seen_lengths import SeenLengths
from tests.builders import batching, governor, moments_of

RUNNING = np.array([900] * 20)


def seen(*, live: bool) -> SeenLengths:
    one = SeenLengths(live=live)
    one.arrived(None)
    for _ in range(20):
        one.arrived(70)
        one.finished(70, 100)
    return one


def test_the_paper_goes_by_finished_requests() -> None:
    assert seen(live=False).moments(RUNNING) == moments_of([(70, 100)] * 20)


def test_where_it_is_not_known_who_runs_those_that_finished_are_all() -> None:
    assert seen(live=True).moments(None) == moments_of([(70, 100)] * 20)


def test_those_that_run_count_else() -> None:
    assert seen(live=True).moments(RUNNING).mean_output > 400
    aborted = seen(live=True)
    for _ in range(20):
        aborted.aborted(900)
    assert aborted.moments(np.array([], dtype=np.int64)).mean_output > 400


def test_once_as_many_have_ended_as_are_kept_they_are_all() -> None:
    one = SeenLengths(live=True)
    for n in (REQUESTS_KEPT - 1, 1):
        for _ in range(n):
            one.finished(70, 100)
        exact = one.moments(RUNNING) == moments_of([(70, 100)] * REQUESTS_KEPT)
        assert exact == (n == 1)


def test_prompts_and_ends_are_counted() -> None:
    one = seen(live=True)
    assert one.prompts == moments_of([(70, 0)] * 20)
    one.moments(RUNNING)
    ended, at_risk = np.frombuffer(one.exposure, np.float32).reshape(2, -1)
    assert ended.sum() == 20
    assert at_risk[0] == 40


@pytest.mark.parametrize(
    ("policy", "longer"), [("adaptive", True), ("static", True), ("paper", False)]
)
def test_a_report_says_so_by_its_policy(policy: str, longer: bool) -> None:
    g = governor(batching(policy=policy))
    for _ in range(20):
        g.finished(70, 100)
    said = g.report(EngineState(20, 0, 5000), 1.0, "r", "g", generated=RUNNING).lengths
    assert (said.mean_output > 400) == longer
    g.configure(batching(policy="paper"))
    said = g.report(EngineState(20, 0, 5000), 1.0, "r", "g", generated=RUNNING).lengths
    assert said.mean_output == 100
