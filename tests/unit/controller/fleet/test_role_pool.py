"""Which engines compute prompts for the others, over exchanges with the control loop."""

from dataclasses import replace
from typing import Any

import pytest

from controller.config import BatchingConfig
from controller.fleet.loop import ControlLoop
from controller.fleet.role_pool import SETTLED_S
from controller.records import BatchLimits, ReplicaReport, Role
from controller.roles import DWELL_S
from tests.builders import batching, engine, moments_of, report, rows_of, sample

# 27 ms and 0.23 ms a decode and 0.12 ms a prompt token: decisions of `paper-fig3`.
STEPS = [
    sample(
        decodes=d,
        kv_tokens=0,
        prefill_tokens=p,
        duration_s=0.0269 + 0.2308e-3 * d + 0.12e-3 * p,
    )
    for d in range(1, 60, 3)
    for p in (0, 64, 256)
]
SHORT = moments_of([(257, 62)] * 120)
ENGINE = engine(
    max_num_seqs=256, max_num_batched_tokens=2048, kv_tokens=200_000, kv_token_bytes=327_680.0
)


class Fleet:
    """Replicas that do as they are told, and the loop."""

    def __init__(self, count: int, roles: Any = "auto") -> None:
        self.leaving = set[str]()
        self.config: BatchingConfig = batching(policy="adaptive", sla={"itl_ms": 50}, roles=roles)
        self.loop, self.now_s = ControlLoop(), 0.0
        self.held: dict[str, Role | None] = {f"r{k}": None for k in range(count)}
        self.running = dict.fromkeys(self.held, 10)
        self.waiting: dict[str, int] = {}
        self.seq = 0

    def report(self, name: str) -> ReplicaReport:
        self.seq += 1
        return report(
            replica_id=name,
            seq=self.seq,
            engine=ENGINE,
            running=self.running[name],
            waiting=self.waiting.get(name, 0),
            lengths=SHORT,
            latest=SHORT,
            rows=rows_of(STEPS),
            role=self.held[name],
            leaving=name in self.leaving,
        )

    def round(self, after_s: float = 0.5, *, settled: bool = True) -> dict[str, BatchLimits]:
        """One exchange of each, once all have come."""
        self.now_s += after_s
        told = {}
        for name in list(self.held):
            self.now_s += 0.01
            told[name] = self.loop.exchange(self.report(name), self.config, self.now_s)
            if settled:
                self.held[name] = told[name].role
        return told

    def lease(self) -> None:
        """As many rounds as a lease lasts, after which no replica has gone for the controller."""
        for _ in range(10):
            self.round(self.config.lease_s / 10)

    def roles(self, after_s: float = 0.5) -> list[Role | None]:
        self.round(after_s)
        self.round(SETTLED_S)
        return [one.role for one in self.round().values()]


def test_without_the_key_nobody_is_told_a_role() -> None:
    assert Fleet(2, roles=None).roles() == [None, None]


def test_short_answers_on_four_engines_have_two_of_them_compute_prompts() -> None:
    fleet = Fleet(4)
    fleet.running = {"r0": 30, "r1": 10, "r2": 20, "r3": 40}
    assert fleet.roles() == ["mixed", "prefill", "prefill", "mixed"]


def test_the_prefill_engine_with_the_shortest_queue_decodes_again() -> None:
    fleet = Fleet(3, roles=2)
    assert fleet.roles() == ["prefill", "prefill", "mixed"]
    fleet.running, fleet.waiting = {"r0": 4, "r1": 8, "r2": 9}, {"r0": 170, "r1": 18, "r2": 0}
    fleet.config = batching(policy="adaptive", sla={"itl_ms": 50}, roles=1)
    assert fleet.roles() == ["prefill", "mixed", "mixed"]


def test_a_number_is_kept_to_and_one_engine_decodes() -> None:
    assert sorted(map(str, Fleet(3, roles=1).roles())) == ["mixed", "mixed", "prefill"]
    assert sorted(map(str, Fleet(2, roles=5).roles())) == ["mixed", "prefill"]
    assert Fleet(1, roles=1).roles() == ["mixed"]


def test_another_number_reaches_engines_that_run() -> None:
    fleet = Fleet(3, roles=2)
    assert fleet.roles().count("prefill") == 2
    fleet.config = batching(policy="adaptive", sla={"itl_ms": 50}, roles=0)
    assert fleet.roles() == ["mixed"] * 3


def test_one_whose_lease_has_run_out_is_given_no_role() -> None:
    fleet = Fleet(3, roles=0)
    fleet.running["r2"] = 0  # which would be the one to change
    fleet.roles()
    del fleet.held["r2"]
    fleet.lease()
    fleet.config = batching(policy="adaptive", sla={"itl_ms": 50}, roles=1)
    assert [one.role for one in fleet.round().values()].count("prefill") == 1


def first(fleet: Fleet, role: Role) -> str:
    return next(name for name, held in fleet.held.items() if held == role)


@pytest.mark.parametrize("leases", [1.2, 2, 4])
def test_after_a_pause_of_the_controller_all_have_the_roles_that_they_had(leases: float) -> None:
    fleet = Fleet(4, roles=2)
    roles = fleet.roles()
    told = fleet.round(leases * fleet.config.lease_s)
    assert [one.role for one in told.values()] == roles
    assert fleet.roles() == roles


@pytest.mark.parametrize("role", ["mixed", "prefill"])
def test_the_last_of_a_role_that_leaves_is_replaced_and_keeps_its_own(role: Role) -> None:
    fleet = Fleet(3, roles=2 if role == "mixed" else 1)
    fleet.roles()
    leaves = first(fleet, role)
    fleet.leaving = {leaves}
    fleet.round()
    told = fleet.round()
    assert told[leaves].role == role
    staying = [one.role for name, one in told.items() if name != leaves]
    assert sorted(map(str, staying)) == ["mixed", "prefill"]


def test_capacity_is_that_of_the_fleet_in_its_roles_for_each_alike() -> None:
    fleet, plain = Fleet(4), Fleet(4, roles=None)
    fleet.roles(), plain.roles()
    (per_s,) = {one.capacity_per_s for one in fleet.round().values()}
    (alone,) = {one.capacity_per_s for one in plain.round().values()}
    assert alone is not None and per_s is not None and per_s > 1.3 * alone
    fleet.loop.switch(enforce=False, group=None, unix_s=1.0)  # each does all of its requests
    assert all(one.capacity_per_s == alone for one in fleet.round().values())


def test_where_no_load_keeps_the_ttft_capacity_is_that_of_the_itl_alone() -> None:
    told = []
    for sla in ({"itl_ms": 50}, {"itl_ms": 50, "ttft_ms": 60}):
        fleet = Fleet(4)
        fleet.config = batching(policy="adaptive", sla=sla, roles={"prefill": 2, "direct": False})
        fleet.roles()
        told.append({one.capacity_per_s for one in fleet.round().values()})
    assert told[0] == told[1] and all(told[0])


def test_a_controller_that_starts_anew_finds_the_roles_as_they_are() -> None:
    fleet = Fleet(4)
    roles = fleet.roles()
    fleet.loop = ControlLoop()
    names = list(fleet.held)
    first = [fleet.loop.exchange(fleet.report(name), fleet.config, 100.0).role for name in names]
    assert first == roles
    fleet.now_s = 100.0
    assert fleet.roles() == roles


def test_long_answers_bring_them_back_no_sooner_than_the_dwell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet(4)
    assert fleet.roles().count("prefill") == 2
    monkeypatch.setattr(f"{__name__}.SHORT", moments_of([(257, 447)] * 120))
    assert fleet.roles().count("prefill") == 2
    assert fleet.roles(after_s=DWELL_S).count("prefill") == 0


def test_what_is_not_known_of_transfers_or_lengths_leaves_all_mixed() -> None:
    fleet = Fleet(4)
    fleet.loop.exchange(
        replace(fleet.report("r0"), engine=replace(ENGINE, kv_token_bytes=0.0)), fleet.config, 0.1
    )
    blind = Fleet(4)
    for name in blind.held:
        few = replace(blind.report(name), latest=moments_of([(257, 62)] * 9))
        assert blind.loop.exchange(few, blind.config, 0.1).role == "mixed"


def test_where_control_is_switched_off_nobody_has_a_role_until_it_is_on_again() -> None:
    fleet = Fleet(3, roles=1)
    assert fleet.roles().count("prefill") == 1
    fleet.loop.switch(enforce=False, group=None, unix_s=1.0)
    assert [one.role for one in fleet.round().values()] == ["mixed"] * 3
    assert fleet.roles() == ["mixed"] * 3
    fleet.loop.switch(enforce=True, group=None, unix_s=2.0)
    assert fleet.roles().count("prefill") == 1


def test_limits_that_are_advice_bring_no_role() -> None:
    fleet = Fleet(3, roles=1)
    fleet.config = fleet.config.model_copy(update={"enforce": False})
    assert fleet.roles() == ["mixed"] * 3
