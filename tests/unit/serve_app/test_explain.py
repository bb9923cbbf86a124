"""What ``brimful explain`` says of one replica, and what it advises."""

import argparse
import json
from dataclasses import asdict
from typing import Any

import pytest

from controller.config import BatchingConfig
from controller.records import Advised, BatchLimits, BoundSteps, ReplicaReport, StepModel
from serve_app import explain
from serve_app.advice import advice_on
from serve_app.explain import explanations, facts, lines
from tests.builders import batching, engine, histogram_of, limits, moments_of, report
from tests.unit.serve_app.snapshots import (
    LONG_GROUP,
    LONG_REPLICA,
    SCALED,
    busy,
    fleet,
    snapshot_of,
)

MODEL = StepModel(0.02, 2e-4, 1e-8, 1e-4, 0.0, 0.0)
SLA = batching(policy="adaptive", sla={"itl_ms": 30})


def said(seen: ReplicaReport, known: BatchLimits, config: BatchingConfig = SLA) -> str:
    """All its facts and advice."""
    return "\n".join([*facts(seen, known, config), *advice_on(seen, known, config)])


def test_it_names_the_cap_what_set_it_and_what_bound_the_steps() -> None:
    seen = report(
        bound_steps=BoundSteps(memory=30, sla=60, load=10),
        lengths=moments_of([(100, 50)] * 4),
        model=MODEL,
    )
    text = said(seen, limits(max_running=40, reason="memory"))
    assert "at most 40 requests at once: with one more, KV memory would overflow" in text
    assert "KV memory kept requests waiting in 30%, the SLA kept requests waiting in 60%" in text
    assert "none waited in 10%" in text
    assert "100 prompt tokens and 50 generated tokens on average" in text
    assert "holds 125 tokens of KV memory" in text
    assert "A step takes 20.00 ms, and 0.2000 ms more for each decode" in text
    assert "10% more holds about 16 requests more" in text


def test_of_an_sla_that_binds_it_says_what_a_looser_one_would_bring() -> None:
    seen = report(lengths=moments_of([(100, 50)] * 4), model=MODEL)
    text = said(seen, limits(max_running=48, reason="sla", replicas=2))
    assert "steps would take longer than the SLA of 30 ms at the 99th percentile" in text
    # 20 ms and 60 times 0.2 ms, and 60 times 125 tokens at 0.01 us each.
    assert "32 ms for 60 requests" in text
    assert "One more replica takes 33% of the requests" in text


def test_late_tokens_that_no_chunk_causes_are_said_where_they_are_more_than_may_be() -> None:
    assert "host" not in said(report(late_anyway=0.009), limits())
    told = said(report(late_anyway=0.026), limits())
    assert "The host makes 2.6% of the tokens late whatever the batch is; 1.00% may be." in told


def test_what_control_would_have_moved_is_said_where_it_only_advises() -> None:
    moved = Advised(starts=480, starts_held=12, prompt_tokens=20_000, tokens_moved=640)
    told = said(report(enforced=False, advised=moved), limits(enforce=False))
    assert "would have moved 12 of 480 starts and 3% of 20,000 prompt tokens to later" in told
    assert "brimful shadow" not in said(report(advised=moved), limits())


def test_stalls_are_said_where_there_were_some() -> None:
    seen = report(itl=histogram_of([0.02] * 5000 + [0.9] * 12))
    text = said(seen, limits())
    assert "12 tokens came more than 20 times the SLA after the one before" in text
    assert "the longest gap was 1.0 s." in text
    assert "longest gap" not in said(seen, limits(), batching())  # no SLA
    assert "longest gap" not in said(report(itl=histogram_of([0.5])), limits())


@pytest.mark.parametrize(
    ("cap", "bounds", "why", "advice"),
    [
        (12, {"max": 12}, "batching.max_running.max allows no more", "Raise batching.max_running"),
        (256, {}, "started with max_num_seqs 256", "a higher engine_kwargs.max_num_seqs"),
        (3, {"min": 3}, "though fewer would be better", "Lower batching.max_running.min"),
    ],
)
def test_of_a_bound_it_says_which(cap: int, bounds: Any, why: str, advice: str) -> None:
    text = said(report(), limits(max_running=cap, reason="bound"), batching(max_running=bounds))
    assert why in text
    assert advice in text


def test_it_says_when_the_sla_is_out_of_reach() -> None:
    text = said(report(model=MODEL), limits(capacity_per_s=0.0, sla_out_of_reach=True))
    assert "no batch keeps the SLA of 30 ms" in text
    assert "A step with a single decode takes 20.2 ms" in text
    assert "More replicas do not help" in text
    assert "no batch keeps" not in said(report(), limits(capacity_per_s=3.0))


def test_it_names_a_replica_in_local_fallback_and_what_is_only_computed() -> None:
    text = said(report(enforced=False), limits(enforce=False))
    assert "It only advises: limits are computed" in text
    assert "It would run at most 64 requests" in text
    assert "batching.enforce: true" in text
    text = said(report(enforced=False), limits())
    assert "Control is switched off: limits are computed" in text
    assert "brimful enforce on" in text
    assert "decides from its own measurements" in said(report(mode="fallback"), limits())


def test_of_a_replica_that_did_nothing_yet_it_says_so() -> None:
    text = said(report(), limits(reason="start"))
    assert "too little was measured yet" in text
    assert "Nothing to do" in text
    assert "A step takes" not in text


def test_where_no_request_waits_nothing_is_advised() -> None:
    assert list(advice_on(report(), limits(reason="load"), SLA)) == []


def test_in_80_columns_no_line_is_longer() -> None:
    explained = list(explanations(fleet()))
    text = list(lines(explained, [], 80))
    assert max(map(len, text)) <= 80
    assert f"{LONG_REPLICA}, group {LONG_GROUP}"[:70] in " ".join(text)
    assert [one.replica for one in explained].count(LONG_REPLICA) == 1
    assert {one.control for one in explained} == {"on", "fallback", "off", "advice"}


def test_a_replica_with_another_engine_is_told_by_its_own() -> None:
    small = report(engine=engine(max_num_seqs=8))
    assert "max_num_seqs 8" in said(small, limits(max_running=8, reason="bound"), batching())


def test_without_replicas_it_says_that() -> None:
    assert list(lines([], [], 80)) == ["No replica has reported yet."]


REFUSED = {"group": "g", "replica": "r9", "reason": "unknown key 'x'", "refused_s_ago": 3.2}


def test_replicas_whose_reports_are_refused_stand_at_the_end() -> None:
    told = "r9 of g: its report was refused 3 s ago"
    (line,) = lines([], explain.refused_lines(snapshot_of(refused=[REFUSED])), 200)
    assert line.startswith(told)
    assert line.endswith("measurements: unknown key 'x'")
    both = snapshot_of((busy(), SLA), refused=[REFUSED])
    text = list(lines(list(explanations(both)), explain.refused_lines(both), 80))
    assert text[text.index("") + 1].startswith(told)
    assert max(map(len, text)) <= 80


def explained(
    snapshot: dict[str, Any], *argv: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> str:
    """What the command prints of this snapshot."""
    monkeypatch.setattr(explain, "connect", lambda address: None)
    monkeypatch.setattr(explain, "read_snapshot", lambda: snapshot)
    parser = argparse.ArgumentParser()
    explain.add_arguments(parser)
    assert explain.run(parser.parse_args(argv)) == 0
    printed: str = capsys.readouterr().out
    return printed


def test_for_scripts_all_is_one_json_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = snapshot_of((busy(), SLA), refused=[REFUSED], scaling=[SCALED])
    in_words = explained(known, monkeypatch=monkeypatch, capsys=capsys)
    assert SCALED.sentence() in " ".join(in_words.split())
    told = json.loads(explained(known, "--json", monkeypatch=monkeypatch, capsys=capsys))
    (one,) = explanations(known)
    assert told == {
        "replicas": [
            {
                "group": "g",
                "replica": "x7k2m9qa",
                "control": "on",
                "max_running": one.max_running,
                "set_by": "memory",
                "facts": list(one.facts),
                "advice": list(one.advice),
            }
        ],
        "refused": [REFUSED],
        "scaling": [asdict(SCALED)],
    }
    assert len(one.facts) > 3
    assert one.advice


def test_json_has_every_replica_of_a_fleet_and_of_none_it_is_empty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = json.loads(explained(fleet(), "--json", monkeypatch=monkeypatch, capsys=capsys))
    assert len(told["replicas"]) == 9
    assert {one["control"] for one in told["replicas"]} == {"on", "fallback", "off", "advice"}
    none = explained(snapshot_of(), "--json", monkeypatch=monkeypatch, capsys=capsys)
    assert json.loads(none) == {"replicas": [], "refused": [], "scaling": []}
    assert "No replica" in explained(snapshot_of(), monkeypatch=monkeypatch, capsys=capsys)
