"""The benchmark of the controller: what its fleet says, and its one JSON line."""

import json
from typing import Any

import pytest

from benchmarks.cost import controller as bench_controller
from benchmarks.cost.bare_engine import BareEngine
from benchmarks.cost.fleet import TRAFFIC, Fleet
from controller.config import BatchingConfig, Sla, parse_batching
from controller.fleet.loop import ControlLoop
from controller.records import ReplicaReport, from_wire
from replicas.profiles.profile import StepNoise
from replicas.profiles.profile_file import load_profile

CONFIG = BatchingConfig(sla=Sla(itl_ms=50))


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet(20, CONFIG, load_profile("paper-fig3"), periods=16)


def test_every_replica_reports_once_a_period_evenly_spread(fleet: Fleet) -> None:
    times, reports = zip(*fleet.reports(3), strict=True)
    assert len({report["replica_id"] for report in reports}) == 20
    assert [report["seq"] for report in reports] == [4] * 20
    assert list(times) == pytest.approx([1.5 + 0.025 * k for k in range(20)])


def test_the_groups_share_the_fleet(fleet: Fleet) -> None:
    groups = [report["group"] for _, report in fleet.reports(0)]
    assert {t.name: groups.count(t.name) / 20 for t in TRAFFIC} == pytest.approx(
        {t.name: t.share for t in TRAFFIC}, abs=0.05
    )


def test_the_controller_learns_from_them(fleet: Fleet) -> None:
    loop = ControlLoop()
    for period in range(fleet.periods):
        for now_s, report in fleet.reports(period):
            limits = loop.exchange(from_wire(ReplicaReport, report), CONFIG, now_s)
            assert limits.max_running > 0
    groups: dict[str, Any] = loop.snapshot(now_s)["groups"]
    assert sum(len(group["replicas"]) for group in groups.values()) == 20
    assert all(group["pool"].model and group["pool"].lengths.n for group in groups.values())


@pytest.mark.parametrize("policy", ["adaptive", "paper:memory=exact"])
def test_the_last_line_is_one_json_object(
    policy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_controller, "WARM_UP_S", 1)
    monkeypatch.setattr(bench_controller, "MEASURED_S", 1)

    bench_controller.main(["--policy", policy, "--replicas", "8", "--no-ray"])

    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = {row["id"]: row for row in last["rows"]}
    assert last["bench"] == "controller"
    assert all(set(row) == {"id", "value", "unit", "target"} for row in last["rows"])
    assert all(row["value"] > 0 for row in last["rows"])
    assert rows["cpu_share_8"]["target"] == 1.0
    assert rows["exchange_p99_ms_8"]["target"] == 5.0


def test_the_bare_engine_accounts_for_its_tokens() -> None:
    config = parse_batching({"policy": "static"})
    engine = BareEngine(config, load_profile("paper-fig3"), StepNoise(0, 0), 50, 20, seed=3)
    prompts = sum(engine.step().prefill_tokens for _ in range(300))
    report = engine.report("one")
    assert report.finished > 100
    assert report.arrivals - report.finished == engine.state.running
    # Prompts of 50 tokens each: those that started are computed, or nearly.
    assert prompts == pytest.approx(50 * report.arrivals, rel=0.1)
    assert report.lengths.mean_output == pytest.approx(20, rel=0.2)
