"""What the batch bench sends, and what it reads off a replay."""

import numpy as np
import pytest

from benchmarks.batch.replays import (
    BATCH,
    ONLINE,
    RUN_S,
    Case,
    figures_of,
    most_offline_per_s,
    offline_of,
    online_of,
    rate_of,
    stats_of,
    step_of,
)
from replicas.profiles.profile_file import load_profile
from simulator.replay.fluid import fluid_limit_per_s
from simulator.virtual.trace import Outcome, Step, Trace, make_gaps
from simulator.workloads.requests import Request

MID = Case("paper-fig3", 7, "mid")


def test_a_day_peaks_at_most_of_what_the_sla_leaves_room_for() -> None:
    limit = fluid_limit_per_s(load_profile("paper-fig3"), stats_of("azure-2023-conversation"), 0.05)
    peak, mid, trough = (rate_of(Case("paper-fig3", 7, hour)) for hour in ("peak", "mid", "trough"))
    assert peak == pytest.approx(0.85 * limit)
    assert trough < mid < peak
    assert 1 <= step_of(MID)[1] < 2  # one engine of twenty sees more even gaps than the fleet


def test_batches_are_there_from_the_start_and_have_no_end() -> None:
    online, offline = online_of(MID), offline_of(MID)
    assert {r.service for r in online} == {ONLINE}
    assert max(r.arrival_s for r in online) < RUN_S
    assert {(r.arrival_s, r.service, r.priority) for r in offline} == {(0.0, BATCH, 10)}
    profile = load_profile("paper-fig3")
    room = most_offline_per_s(profile, 0.0)
    assert sum(r.output_tokens for r in offline) > RUN_S * room
    assert most_offline_per_s(profile, 1e9) == 0


def test_figures_are_of_online_requests_and_of_offline_tokens() -> None:
    def one(arrival_s: float, service: str, first_s: float | None) -> Outcome:
        request = Request(arrival_s, 10, 3, service=service)
        return Outcome(request, tokens=3, first_token_s=first_s, finished_s=first_s)

    outcomes = (
        one(0.0, BATCH, 30.0),
        one(25.0, ONLINE, 26.0),
        one(25.0, ONLINE, 28.0),  # its first token is late
        one(25.0, ONLINE, 26.0),  # and a later one of this
        one(5.0, ONLINE, 9.0),  # before the engine is warm
    )
    gaps = [(0.2, 40.0, 0), (0.04, 41.0, 1), (0.04, 41.0, 2), (0.06, 41.0, 3), (0.9, 10.0, 4)]
    steps = tuple(Step(float(s), 0.5, 1, 0, 1, 0, 16, 9, 99) for s in range(1, 81))
    found = figures_of(Trace(outcomes, steps, make_gaps(gaps), (), 1000, 80.0))
    assert found.offline_per_s == pytest.approx(2 / 60)
    assert found.good_frac == pytest.approx(1 / 3)
    assert found.late_frac == pytest.approx(1 / 3)
    assert found.busy_frac == pytest.approx(61 * 0.5 / 60)
    assert found.ttft_p99_ms == pytest.approx(np.percentile([1000, 3000, 1000], 99))
