"""From what clients saw to the figures and their targets."""

import argparse
import json

import numpy as np

from benchmarks.live.client_view import Seen
from benchmarks.routing.__main__ import Figures, in_virtual_time, of_seen, of_served, section
from benchmarks.routing.fleet import Served
from simulator.workloads.requests import Request

SETTINGS = argparse.Namespace(load=0.75, time_scale=2.0, seconds=30.0)


def test_the_best_other_router_is_what_ours_is_held_against() -> None:
    http = {
        "round_robin": Figures(1.0, 10.0, 50.0, 0.5),
        "least_load": Figures(1.0, 4.0, 60.0, 0.8),
        "headroom": Figures(0.5, 2.0, 55.0, 0.9),
    }
    virtual = {name: [one, one] for name, one in http.items()}
    found = section(http, virtual, SETTINGS)
    rows = {row.id: row for row in found.rows}
    assert rows["routing_ttft"].estimate.value == 0.5
    assert rows["routing_ttft"].met
    assert rows["routing_itl"].estimate.value == 1.1
    assert rows["routing_goodput"].estimate.value == 0.9 / 0.8
    assert rows["routing_virtual_ttft"].estimate.value == 0.5
    json.dumps([row.to_json() for row in found.rows])
    text = found.markdown("make bench-routing")
    assert "| `least_load` | 1 | 4 | 60 | 0.800 | 0 |" in text


def test_who_was_not_served_is_not_inside() -> None:
    seen = Seen(
        arrival_s=np.zeros(4),
        ttft_s=np.array([0.1, 0.2, 0.3, 5.0]),
        tpot_s=np.full(4, 0.04),
        gap_s=np.array([0.04, 0.05]),
        gap_end_s=np.ones(2),
    )
    assert of_seen(seen, failed=0).inside == 0.75
    assert of_seen(seen, failed=2).inside == 0.5
    assert of_seen(seen, failed=2).failed == 2


def test_a_request_in_virtual_time_is_inside_by_its_mean_gap_and_its_first_token() -> None:
    def served(first_s: float, gaps_s: list[float]) -> Served:
        return Served(Request(1.0, 10, 3), 0, 0, first_s, gaps_s, 9.0)

    found = of_served([served(1.5, [0.04, 0.05]), served(4.0, [0.04]), served(1.5, [0.09])])
    assert found.inside == 1 / 3
    assert found.p50_ttft_s == 0.5


def test_in_virtual_time_every_router_has_a_run_per_seed(monkeypatch) -> None:
    monkeypatch.setattr("benchmarks.routing.__main__.VIRTUAL_S", 5.0)
    found = in_virtual_time([1, 2])
    assert {len(runs) for runs in found.values()} == {2}
    assert "headroom" in found
