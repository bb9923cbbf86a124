"""A fleet with roles in virtual time: invariants under any roles."""

import numpy as np
import pytest

from controller.config import Sla
from controller.roles import Transfer
from replicas.profiles.profile_file import load_profile
from simulator.replay.fleet import Fleet
from simulator.replay.steering import Auto, Fixed
from simulator.virtual.plan import engine_of, parse_policy
from simulator.virtual.scenario import Scenario
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request
from simulator.workloads.traffic import draw_traffic

PROFILE = load_profile("paper-fig3")
SLA = Sla(itl_ms=50, ttft_ms=2000)
PLAN = parse_policy("adaptive", SLA, engine_of(PROFILE))
LINK = Transfer(327_680, 25e9 / 8, 0.005)


def requests(per_s: float, count: int) -> tuple[Request, ...]:
    return draw_traffic(load_workload("exponential:257,20"), count, None, 3).at(per_s)


def fleet(steering: Fixed, asked: tuple[Request, ...], kv_tokens: int | None = None) -> Fleet:
    scenario = Scenario(PROFILE.with_kv_tokens(kv_tokens))
    return Fleet(asked, PLAN, scenario, 3, LINK, steering)


class Changing(Fixed):
    """Roles rotate at any time."""

    def hear(self, engine, report, load, now_s):
        super().hear(engine, report, load, now_s)
        at = int(now_s) % 3
        self.roles = ["prefill" if k == at else "mixed" for k in range(3)]


STEERINGS = {
    "1:2": lambda: Fixed(3, 1, LINK, SLA),
    "2:1": lambda: Fixed(3, 2, LINK, SLA),
    "1:2 direct too": lambda: Fixed(3, 1, LINK, SLA, direct=True),
    "auto": lambda: Auto(3, LINK, SLA),
    "changing": lambda: Changing(3, 1, LINK, SLA, direct=True),
}


@pytest.mark.parametrize("kv_tokens", [None, 6_000])
@pytest.mark.parametrize("name", STEERINGS)
def test_tokens_are_conserved_and_no_block_stays_held(name: str, kv_tokens: int | None) -> None:
    asked = requests(40.0, 250)
    served = fleet(STEERINGS[name](), asked, kv_tokens)
    trace = served.run(drain=True)
    outcomes = trace.outcomes
    assert [o.request for o in outcomes] == list(asked)
    assert all(o.finished_s is not None for o in outcomes)
    assert all(o.tokens == o.request.output_tokens for o in outcomes)
    gaps = np.bincount(trace.gaps.request, minlength=len(asked))
    assert gaps.tolist() == [o.tokens - 1 for o in outcomes]
    assert served.held == [0, 0, 0]
    # The KV of each request with a prefill engine was transferred once, whole.
    through = [n for n, route in enumerate(served.routes) if route.prefill is not None]
    assert through
    assert sorted(served.links.moved) == sorted(asked[n].input_tokens for n in through)
    for o in outcomes:
        assert o.request.arrival_s <= o.scheduled_s < o.first_token_s <= o.finished_s


@pytest.mark.parametrize("name", ["auto", "1:2 direct too"])
def test_requests_whose_kv_comes_make_no_step_late(name: str) -> None:
    """2% of the gaps were late while steps were planned without them (decision 50)."""
    asked = draw_traffic(load_workload("exponential:257,62"), 900, None, 3).at(24.0)
    gaps_s = fleet(STEERINGS[name](), asked).run(drain=True).gaps.length_s
    assert (gaps_s > 1.001 * SLA.itl_s).mean() < 0.01
