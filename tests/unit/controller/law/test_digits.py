"""What the controller decides on four fixed histories, and the steps that follow, to six digits.

Other tests say what the law has to do. This one says that nothing else changed. If a change is
meant, ``python -m tests.unit.controller.law.test_digits`` writes the digits anew.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.config import parse_batching
from controller.fleet.loop import ControlLoop
from controller.models.step_time import StepModel
from controller.records import (
    BatchLimits,
    ClassSlo,
    EngineLimits,
    EngineReport,
    EngineState,
    RecentSteps,
    StepSample,
    to_wire,
)
from replicas.engine.limiter import Limiter, long_chunks
from tests.builders import engine, exposure, moments_of, report, rows_of

DIGITS = Path(__file__).with_suffix(".json")
MODEL = StepModel(0.012, 1.5e-4, 1.2e-7, 6e-5, 2e-9, 0.0, mixed_s=0.002)
SLA = {"policy": "adaptive", "sla": {"itl_ms": 40, "ttft_ms": 2000}}
CASES: dict[str, tuple[dict[str, Any], EngineLimits, tuple[ClassSlo, ...]]] = {
    "an SLA": (SLA, engine(kv_tokens=60_000), ()),
    "classes": (SLA, engine(by_priority=True), (ClassSlo(0.03, 99.0), ClassSlo(math.inf, 99.0))),
    "memory": ({"policy": "adaptive"}, engine(max_model_len=4096), ()),
    "graphs": (SLA, engine(graph_tokens=256, long_prompt_tokens=512), ()),
}


def steps(case: str, seed: int, classes: int) -> list[StepSample]:
    """Steps with noise, a slow phase and a pause; those beyond the graphs wait for a launch."""
    draw, found = np.random.default_rng(seed), []
    for k in range(320):
        decodes = int(draw.integers(5, 60))
        prompt = int(draw.integers(16, 700)) if draw.random() < 0.4 else 0
        kv, context = decodes * int(draw.integers(100, 500)), prompt * int(draw.integers(0, 900))
        took_s = MODEL.predict_s(decodes, kv, prompt, context) * draw.normal(1.0, 0.05)
        took_s *= 1.8 if 200 <= k < 240 else 1.0
        if case == "graphs" and decodes + prompt > 256:
            took_s = max(took_s, 0.045)
        took_s += 0.1 if k == 120 else 0.0
        started = (prompt + 40,) if prompt and k % 3 == 0 else ()
        strict = int(draw.integers(0, decodes))
        by_class = (strict, decodes - strict) if classes else ()
        found.append(
            StepSample(decodes, kv, prompt, context, took_s, started=started, by_class=by_class)
        )
    return found


def reports(case: str, replica: int) -> Iterator[EngineReport]:
    """Four reports of one replica; the last one alone after the slow phase."""
    _, limits, slos = CASES[case]
    draw, every = np.random.default_rng(100 + replica), steps(case, replica, len(slos))
    answers = draw.integers(20, 400, 200).tolist()
    seen = exposure(answers)
    for seq, count in enumerate((30, 150, 230, 320), 1):
        table = np.column_stack(
            [draw.integers(50, 900, 6), draw.integers(1, 300, 6), draw.integers(50, 400, 6)]
        )
        batch = np.column_stack([table, [3, 2, 4, 1, 5, 2]]).astype(np.float32)
        running, waiting = int(batch[:, 3].sum()), int(draw.integers(0, 40))
        queue = np.array([[300, 0, 200, waiting]] if waiting else np.zeros((0, 4)), np.float32)
        yield report(
            replica_id=f"r{replica}",
            seq=seq,
            engine=limits,
            running=running,
            waiting=waiting,
            kv_used_tokens=int(batch[:, 0] @ batch[:, 3]) + 200,
            finished=40 * seq,
            preemptions=seq * (3 if case == "memory" else 0),
            recent=RecentSteps(steps=20, itl_s=0.025, decodes=30.0, tokens=120.0),
            lengths=moments_of(zip(draw.integers(50, 600, 200).tolist(), answers, strict=True)),
            lengths_seen=np.concatenate([seen.ended, seen.at_risk]).astype(np.float32).tobytes(),
            rows=rows_of(every[:count]),
            batch=batch.tobytes(),
            queue=queue.tobytes(),
            slos=slos,
        )


def limits_of(case: str) -> list[BatchLimits]:
    """What three replicas of a group get, the last of which is 1.7 times as slow."""
    loop, config, given = ControlLoop(), parse_batching(CASES[case][0]), []
    lives = [reports(case, replica) for replica in range(3)]
    memory: dict[str, Any] = {}
    for turn in range(4):
        for replica, life in enumerate(lives):
            said = replace(next(life), memory=memory.get(f"r{replica}", {}))
            limits = loop.exchange(said, config, 0.5 * turn + 0.1 * replica)
            memory[f"r{replica}"] = json.loads(json.dumps(dict(limits.memory)))
            given.append(limits)
    return given


def states(limits: EngineLimits, classes: int) -> Iterator[EngineState]:
    draw = np.random.default_rng(7)
    for k in range(40):
        decodes = int(draw.integers(0, 60))
        half = [tuple(map(int, draw.integers(10, 3000, 2))) for _ in range(k % 4)]
        strict = int(draw.integers(0, decodes + 1))
        yield EngineState(
            decodes + len(half),
            int(draw.integers(0, 50)) * (k % 3 > 0),
            int(draw.integers(0, limits.kv_tokens)),
            decodes=decodes,
            decode_kv_tokens=decodes * int(draw.integers(100, 600)),
            prompts=half,
            by_class=(strict, decodes - strict) if classes else (),
            itl_s=(0.03, math.inf) if classes else (),
            loose=decodes - strict if classes else 0,
            hurried=bool(classes and k % 2),
            ready=k % 5 == 0,
            outranks=lambda k=k: k % 7 == 0,
        )


def found(case: str) -> list[float | str | None]:
    """All numbers of the limits, then those of the steps that the last of them give."""
    config, limits, slos = CASES[case]
    given = limits_of(case)
    flat = [leaf for one in given for leaf in leaves(to_wire(one))]
    sla = parse_batching(config).sla
    limiter = Limiter(limits, 1, long_chunks(sla.itl_ms, sla.ttft_ms))
    for k, state in enumerate(states(limits, len(slos))):
        limiter.speed.observe(0.03 * (1 + k % 3), 0.03, 1.2)
        waiting = [(50 + 97 * i % 900, 60 + 97 * i % 900) for i in range(state.waiting)]
        flat += leaves(astuple(limiter.limits(state, given[-1], lambda n, w=waiting: w[:n])))
    return flat


def leaves(value: Any) -> list[float | str | None]:
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if isinstance(value, list | tuple):
        return [leaf for one in value for leaf in leaves(one)]
    return [None if value == math.inf else value]


@pytest.mark.parametrize("case", CASES)
def test_no_other_digit_changes(case):
    known = json.loads(DIGITS.read_text())[case]
    for index, (now, before) in enumerate(zip(found(case), known, strict=True)):
        same = now == before if not isinstance(before, float) else None
        assert same or now == pytest.approx(before, rel=1e-6, abs=1e-9), f"{case}, number {index}"


if __name__ == "__main__":
    DIGITS.write_text(json.dumps({case: found(case) for case in CASES}, separators=(",", ":")))
