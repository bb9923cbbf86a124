"""More than one replica carries, where nothing is configured but an ITL (``ARGS=--wait``).

One emulated replica under `sla.itl_ms` alone: the longest predicted wait is the only reason to
refuse. Requests of 257/62 (exponential), Poisson arrivals at what it carries, at 1.2 times and at 3
times that, over HTTP, by a client that sends none of them again. Requests per second that end whole
are counted from when the queue is as long as it gets to the last arrival.
"""

import asyncio
from typing import Any

import numpy as np

from benchmarks.live.emulated import emulated_application
from benchmarks.overload.shapes import PROFILE
from benchmarks.overload.stack import MODEL, URL, fleet
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, exactly
from serve_app.demo.client import Ask, send
from serve_app.launch.running import wait_reached
from simulator.workloads.catalog import load_workload
from simulator.workloads.traffic import draw_requests

ITL_MS, CARRIED_PER_S = 50.0, 10.0
OVER = (1.0, 1.2, 3.0)
SECONDS, SETTLED_S = 100.0, 40.0
LONGEST_S = 33.0  # of the accepted, p99: the 30 s of the bound and a tenth
WORKLOAD, SEED = "exponential:257,62", 1
MOST_TOKENS = 2040
HEAD = ("load", "sent", "whole", "429", "TTFT p50 s", "p99 s", "whole/s", "client late ms")


def one_replica() -> dict[str, Any]:
    """The application: nothing but an SLA."""
    return emulated_application(
        MODEL,
        engine={
            "max_num_seqs": 256,
            "max_num_batched_tokens": 2048,
            "max_model_len": MOST_TOKENS + 8,
        },
        deployment={"num_replicas": 1},
        emulate={"profile": PROFILE, "kv_tokens": 60_000, "time_scale": 1.0},
        batching={"policy": "adaptive", "sla": {"itl_ms": ITL_MS}},
    )


def asked(rate_per_s: float, seconds: float) -> list[Ask]:
    """Requests that fit into the model."""
    drawn = draw_requests(
        load_workload(WORKLOAD), int(rate_per_s * seconds), rate_per_s, None, SEED
    )
    return [
        Ask(
            [20 + (7 * k + i * i) % 400 for i in range(r.input_tokens)],
            r.output_tokens,
            at_s=r.arrival_s,
        )
        for k, r in enumerate(drawn)
        if r.input_tokens + r.output_tokens <= MOST_TOKENS
    ]


def loaded(over: float, seconds: float) -> tuple[float, list[Row], tuple[str, ...]]:
    """One load: requests/s that end whole, the figures with targets, and a line of ``HEAD``."""
    asks = asked(over * CARRIED_PER_S, seconds)
    answers = asyncio.run(send(URL, MODEL, asks))
    whole = [(ask, one) for ask, one in zip(asks, answers, strict=True) if one.whole]
    ttft_p50_s, ttft_p99_s = np.percentile([one.ttft_s or 0.0 for _, one in whole], (50, 99))
    late = np.mean(np.concatenate([one.itl_s for _, one in whole]) > ITL_MS / 1000)
    ended_s = np.array([ask.at_s + one.total_s for ask, one in whole])
    begin_s, end_s = SETTLED_S * seconds / SECONDS, asks[-1].at_s
    per_s = ((ended_s >= begin_s) & (ended_s < end_s)).sum() / (end_s - begin_s)
    refused = sum(one.status == 429 for one in answers)
    errors = len(asks) - len(whole) - refused
    name, at = f"wait_{over:g}x", f"at {over:g}x"
    figures = (
        (f"{name}_ttft_p99", f"TTFT of the accepted {at}, p99", "s", ttft_p99_s, LONGEST_S),
        (f"{name}_late", f"gaps above the SLA {at}", "", late, 0.01),
        (f"{name}_errors", f"neither whole nor 429 {at}", "", errors, 0),
    )
    rows = [
        Row(id_, what, unit, exactly(float(value)), at_most=most)
        for id_, what, unit, value, most in figures
    ]
    late_ms = 1000 * max(one.late_s for one in answers)
    counts = (str(len(asks)), str(len(whole)), str(refused))
    times = (f"{ttft_p50_s:.2f}", f"{ttft_p99_s:.2f}", f"{per_s:.2f}", f"{late_ms:.0f}")
    return float(per_s), rows, (f"{over:g}x", *counts, *times)


def run(seconds: float = SECONDS) -> Section:
    """All loads on one cluster."""
    with fleet() as deployed:
        deployed.deploy(one_replica())
        wait_reached(URL)
        loaded(0.5, seconds / 5)  # so that its pace is known
        found = {over: loaded(over, seconds) for over in OVER}
    one, rows = found[1.0][0], []
    for over, (per_s, figures, _) in found.items():
        rows += figures
        if over > 1:
            name, what = (
                f"wait_{over:g}x_goodput",
                f"requests/s that end whole at {over:g}x, over 1x",
            )
            rows.append(Row(name, what, "", exactly(per_s / one), at_least=0.95))
    return Section(
        "Wait",
        "more than a replica carries, under an ITL alone",
        str(__doc__).split("\n\n", 1)[1].strip(),
        tuple(rows),
        (markdown_table(HEAD, [line for _, _, line in found.values()]),),
        max_tokens=None,
    )
