"""One replica of four at half speed, in virtual time: who routes how well."""

import numpy as np
import pytest

from benchmarks.routing.fleet import ROUTERS, Served, Speed, serve
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request
from simulator.workloads.traffic import draw_traffic

FLEET = [Speed()] * 3 + [Speed().slower(2)]


def p99_ttft_s(served: list[Served]) -> float:
    return float(np.percentile([one.ttft_s for one in served], 99))


@pytest.mark.parametrize("rate_per_s", [12.0, 20.0])
def test_with_one_replica_at_half_speed_its_p99_ttft_is_the_lowest_by_a_fifth(
    rate_per_s: float,
) -> None:
    workload = load_workload("azure-2023-conversation")
    requests = draw_traffic(workload, round(40 * rate_per_s), None, seed=1).at(rate_per_s)
    found = {router: p99_ttft_s(serve(router, FLEET, requests)) for router in ROUTERS}
    ours = found.pop("headroom")
    assert ours <= 0.8 * min(found.values())


@pytest.mark.parametrize("router", ROUTERS)
def test_every_request_is_served_whole_and_steps_keep_to_their_time(router: str) -> None:
    requests = [Request(k / 10, 300, 20) for k in range(60)]
    served = serve(router, FLEET, requests)
    assert [one.request for one in served] == requests
    assert all(len(one.gaps_s) == 19 for one in served)
    assert max(gap for one in served for gap in one.gaps_s) <= Speed().step_s + 1e-9


def test_a_burst_between_two_statistics_is_spread() -> None:
    # Three replicas have one long request each: by the last statistics the fourth is the emptiest,
    # and least load sends it all that comes before the next ones.
    long = [Request(k * 1.0, 100, 900) for k in range(3)]
    burst = [Request(4.0 + k / 200, 400, 10) for k in range(40)]
    even = [Speed()] * 4
    by_room, by_load = (
        p99_ttft_s(serve(router, even, [*long, *burst])) for router in ("headroom", "least_load")
    )
    assert by_room < 0.6 * by_load
