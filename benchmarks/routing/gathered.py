"""Where requests of each class go over HTTP: ``make bench-routing ARGS=--gathered``.

Three emulated replicas behind HAProxy, which forwards bodies to the router; one class after the
other at a light load, so that every request may go to its class's end, and requests without one.
"""

import asyncio
import random
import time
from collections.abc import Mapping

from benchmarks.contests.classes import CLASSES
from benchmarks.live.emulated import emulated_application
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, exactly
from benchmarks.routing.stack import MODEL, URL, Fleet, fleet, reports
from controller.config import Sla
from serve_app.demo.client import Ask, send
from serve_app.demo.tiny_model import VOCAB

REPLICAS, TIME_SCALE = 3, 4.0
REQUESTS, PER_S, PROMPT, ANSWER = 60, 6.0, 100, 20
UNNAMED = "none named"


def application() -> dict[str, object]:
    """Three replicas that share classes by their ends."""
    top = CLASSES.by_name["gold"]
    sla = Sla(itl_ms=top.itl_ms, ttft_ms=top.ttft_ms)
    return emulated_application(
        MODEL,
        engine={"max_num_seqs": 256, "max_num_batched_tokens": 2048, "max_model_len": 2048},
        deployment={"num_replicas": REPLICAS},
        router={"gather_classes": True},
        emulate={"profile": "paper-fig3", "time_scale": TIME_SCALE},
        env={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"},
        batching={"policy": "adaptive", "sla": sla.model_dump()},
        classes=CLASSES.to_wire(),
    )


def run() -> tuple[list[Row], str]:
    """Rows and a table: of each class, how many requests each replica finished, in their order."""
    with fleet(application(), REPLICAS, TIME_SCALE) as deployed:
        found = {name: _finished(deployed, name) for name in (*CLASSES.by_name, None)}
    rows, lines = [], []
    for name, counts in found.items():
        lines.append((name or UNNAMED, *(str(count) for count in counts)))
        if name is not None:
            place = 0 if name == "gold" else -1
            share = exactly(counts[place] / sum(counts))
            rows.append(Row(f"routing_gathered_{name}", f"{name}: at its end", "", share))
    head = ("class", *(f"replica {k + 1}" for k in range(REPLICAS)))
    return rows, markdown_table(head, lines)


def _finished(deployed: Fleet, name: str | None) -> list[int]:
    chosen = random.Random(name)
    asks = [
        Ask([chosen.randrange(3, VOCAB) for _ in range(PROMPT)], ANSWER, k / PER_S, ANSWER)
        for k in range(REQUESTS)
    ]
    before = _counts()
    named = {} if name is None else {"service_tier": name}
    answers = asyncio.run(send(URL, MODEL, asks, extra=named))
    if failed := [a.error or a.status for a in answers if not a.whole]:
        raise RuntimeError(f"{len(failed)} of {len(asks)} were not served whole: {failed[0]}")
    deployed.wait_idle()
    time.sleep(2 / PER_S + 1)  # the last ones' report
    after = _counts()
    return [after[key] - before.get(key, 0) for key in sorted(after)]


def _counts() -> Mapping[str, int]:
    return {one.replica_id: one.finished for one in reports()}
