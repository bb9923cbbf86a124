"""A fleet with roles in virtual time: what has to hold whatever the roles."""

import numpy as np
import pytest

from controller.config import Sla
from controller.roles import Transfer
from replicas.profiles.profile_file import load_profile
from simulator.replay.fleet import Fleet, FleetTrace
from simulator.replay.steering import Auto, Fixed, Steering
from simulator.virtual.ground import Ground
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request
from simulator.workloads.traffic import draw_traffic
from tests.builders import report

PROFILE = load_profile("paper-fig3")
SLA = Sla(itl_ms=50, ttft_ms=2000)
PLAN = parse_policy("adaptive", SLA, engine_of(PROFILE))
LINK = Transfer(327_680, 25e9 / 8, 0.005)


def requests(per_s: float, count: int) -> tuple[Request, ...]:
    return draw_traffic(load_workload("exponential:257,20"), count, None, 3).at(per_s)


def served(
    steering: Steering, asked: tuple[Request, ...], kv_tokens: int | None = None
) -> FleetTrace:
    ground = Ground(PROFILE.with_kv_tokens(kv_tokens))
    return Fleet(asked, PLAN, ground, 3, LINK, steering).run(drain=True)


class Changing(Fixed):
    """Roles go round, whatever is under way."""

    def hear(self, engine, report, room, now_s):
        super().hear(engine, report, room, now_s)
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
    found = served(STEERINGS[name](), asked, kv_tokens)
    outcomes = found.trace.outcomes
    assert [o.request for o in outcomes] == list(asked)
    assert all(o.finished_s is not None for o in outcomes)
    assert all(o.tokens == o.request.output_tokens for o in outcomes)
    gaps = np.bincount(found.trace.gaps.request, minlength=len(asked))
    assert gaps.tolist() == [o.tokens - 1 for o in outcomes]
    assert found.held == (0, 0, 0)
    # Each that went through was moved once, whole, and had its first token after that.
    through = [n for n, way in enumerate(found.ways) if way.prefill is not None]
    assert through
    assert sorted(m.tokens for m in found.moved) == sorted(asked[n].input_tokens for n in through)
    for o in outcomes:
        assert o.request.arrival_s <= o.scheduled_s < o.first_token_s <= o.finished_s


def test_a_card_sends_one_after_the_other() -> None:
    slow = Transfer(327_680, 1e9 / 8, 0.005)
    asked = requests(8.0, 60)
    steering = Fixed(3, 1, slow, SLA)
    found = Fleet(asked, PLAN, Ground(PROFILE), 3, slow, steering).run(drain=True)
    wire_s = [slow.wire_s(m.tokens) for m in found.moved]
    last_s = 0.0
    for moved, takes_s in zip(found.moved, wire_s, strict=True):
        last_s = max(last_s, moved.asked_s) + takes_s
        assert moved.done_s >= last_s + slow.latency_s - 1e-9
    assert found.held == (0, 0, 0)


def test_in_a_replay_too_the_shortest_queue_changes_its_role() -> None:
    fleet = Fixed(3, 2, Transfer(1e5, 1e9), Sla(itl_ms=50))
    for engine, (running, waiting) in enumerate([(4, 170), (8, 18), (9, 0)]):
        fleet.hear(engine, report(running=running, waiting=waiting), None, 0.0)
    fleet._assign(1)
    assert fleet.roles == ["prefill", "mixed", "mixed"]
