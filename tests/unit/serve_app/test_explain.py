"""What ``brimful explain`` says of one replica, and what it advises."""

import argparse
import json
from dataclasses import asdict
from typing import Any

import pytest

from controller.config import BatchingConfig
from controller.records import Advised, BatchLimits, BoundSteps, ReplicaReport, StepModel
from serve_app import explain
from serve_app.explain import advice_on, explanations, facts
from tests.builders import batching, engine, histogram_of, limits, moments_of, report
from tests.unit.serve_app.snapshots import (
    SCALED,
    busy,
    snapshot_of,
)

MODEL = StepModel(0.02, 2e-4, 1e-8, 1e-4, 0.0, 0.0)
SLA = batching(policy="adaptive", sla={"itl_ms": 30})


def said(seen: ReplicaReport, known: BatchLimits, config: BatchingConfig = SLA) -> str:
    """All its facts and advice."""
    return "\n".join([*facts(seen, known, config), *advice_on(seen, known, config)])


LENGTHS = moments_of([(100, 50)] * 4)
BOUND = BoundSteps(memory=30, sla=60, load=10)
MOVED = Advised(starts=480, starts_held=12, prompt_tokens=20_000, tokens_moved=640)
STALLED = histogram_of([0.02] * 5000 + [0.9] * 12)


def bound(cap: int, **bounds: int) -> tuple[BatchLimits, BatchingConfig]:
    return limits(max_running=cap, reason="bound"), batching(max_running=bounds)


@pytest.mark.parametrize(
    ("seen", "known", "parts", "absent"),
    [
        # The cap, what set it, and what bound the steps.
        (report(bound_steps=BOUND, lengths=LENGTHS, model=MODEL),
         [limits(max_running=40, reason="memory")],
         ["at most 40 requests at once: with one more, KV memory would overflow",
          "KV memory kept requests waiting in 30%, the SLA kept requests waiting in 60%",
          "none waited in 10%", "100 prompt tokens and 50 generated tokens on average",
          "holds 125 tokens of KV memory",
          "A step takes 20.00 ms, and 0.2000 ms more for each decode",
          "10% more holds about 16 more requests"], ""),
        # What a looser SLA would bring: 20 ms and 60 times 0.2, and 125 tokens at 0.01 us each.
        (report(lengths=LENGTHS, model=MODEL), [limits(max_running=48, reason="sla", replicas=2)],
         ["steps would take longer than the SLA of 30 ms at the 99th percentile",
          "32 ms for 60 requests", "One more replica takes 33% of the requests"], ""),
        # Late tokens that no chunk causes, where they are more than may be.
        (report(late_anyway=0.009), [limits()], [], "host"),
        (report(late_anyway=0.026), [limits()],
         ["2.6% of the tokens are late with any chunk", "the SLA allows 1.00%."], ""),
        # What control would have moved, where it only advises.
        (report(enforced=False, advised=MOVED), [limits(enforce=False)],
         ["would have moved 12 of 480 starts and 3% of 20,000 prompt tokens to later"], ""),
        (report(advised=MOVED), [limits()], [], "brimful shadow"),
        # Stalls, where there were some and there is an SLA.
        (report(itl=STALLED), [limits()],
         ["12 tokens came more than 20 times the SLA after the one before",
          "the longest gap was 1.0 s."], ""),
        (report(itl=STALLED), [limits(), batching()], [], "longest gap"),
        (report(itl=histogram_of([0.5])), [limits()], [], "longest gap"),
        # Which bound it is.
        (report(), bound(12, max=12),
         ["batching.max_running.max allows no more", "Raise batching.max_running"], ""),
        (report(), bound(256),
         ["started with max_num_seqs 256", "a higher engine_kwargs.max_num_seqs"], ""),
        (report(), bound(3, min=3),
         ["though fewer would be better", "Lower batching.max_running.min"], ""),
        (report(engine=engine(max_num_seqs=8)), bound(8), ["max_num_seqs 8"], ""),
        # An SLA out of reach.
        (report(model=MODEL), [limits(capacity_per_s=0.0, sla_out_of_reach=True)],
         ["no batch keeps the SLA of 30 ms", "A step with a single decode takes 20.2 ms",
          "More replicas do not help"], ""),
        (report(), [limits(capacity_per_s=3.0)], [], "no batch keeps"),
        # Local fallback, and what is only computed.
        (report(enforced=False), [limits(enforce=False)],
         ["It only advises: limits are computed", "It would run at most 64 requests",
          "batching.enforce: true"], ""),
        (report(enforced=False), [limits()],
         ["Control is switched off: limits are computed", "brimful enforce on"], ""),
        (report(mode="fallback"), [limits()], ["decides from its own measurements"], ""),
        # A replica that did nothing yet.
        (report(), [limits(reason="start")],
         ["too little was measured yet", "Nothing to do"], "A step takes"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_replica(
    seen: ReplicaReport, known: Any, parts: Any, absent: str
) -> None:
    text = said(seen, *known)
    assert [part for part in parts if part not in text] == []
    assert not absent or absent not in text


REFUSED = {"group": "g", "replica": "r9", "reason": "unknown key 'x'", "refused_s_ago": 3.2}


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
                "set_by": one.set_by,
                "facts": list(one.facts),
                "advice": list(one.advice),
            }
        ],
        "refused": [REFUSED],
        "scaling": [asdict(SCALED)],
    }
    assert len(one.facts) > 3
    assert one.advice
