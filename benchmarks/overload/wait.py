"""More than one replica carries, where nothing is configured but an ITL (``ARGS=--wait``).

One emulated replica under `sla.itl_ms` alone: the longest predicted wait is the only reason to
refuse. Requests of 257/62 (exponential), Poisson arrivals at what it carries, at 1.2 times and at 3
times that, over HTTP, by a client that sends none of them again. Requests per second that end whole
are counted from when the queue is as long as it gets to the last arrival.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.overload.stack import MODEL, URL, application, fleet
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, exactly
from serve_app.demo.client import Ask, send
from serve_app.demo.cluster import wait_reached
from simulator.workloads.catalog import load_workload
from simulator.workloads.traffic import draw_requests

ITL_MS, CARRIED_PER_S = 50.0, 10.0
OVER = (1.0, 1.2, 3.0)
SECONDS, SETTLED_S = 100.0, 40.0
LONGEST_S = 33.0  # of the accepted, p99: the 30 s of the bound and a tenth
WORKLOAD, SEED = "exponential:257,62", 1
MOST_TOKENS = 2040


@dataclass(frozen=True, slots=True)
class Load:
    """What came of one load: seconds, shares, requests/s."""

    over: float
    sent: int
    whole: int
    refused: int
    errors: int
    ttft_s: tuple[float, float]
    late: float
    whole_per_s: float
    client_late_s: float


def one_replica() -> dict[str, Any]:
    """The application: nothing but an SLA."""
    made = application("defaults", 1.0)
    (entry,) = made["args"]["llm_configs"]
    entry["engine_kwargs"] |= {
        "max_num_seqs": 256,
        "max_num_batched_tokens": 2048,
        "max_model_len": MOST_TOKENS + 8,
    }
    entry["deployment_config"] |= {"num_replicas": 1, "max_ongoing_requests": 4096}
    entry["emulate"] |= {"kv_tokens": 60_000}
    entry["batching"] = {"policy": "adaptive", "sla": {"itl_ms": ITL_MS}}
    return made


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


def loaded(over: float, seconds: float) -> Load:
    """One load."""
    asks = asked(over * CARRIED_PER_S, seconds)
    answers = asyncio.run(send(URL, MODEL, asks))
    whole = [(ask, one) for ask, one in zip(asks, answers, strict=True) if one.whole]
    ttft_s = np.array([one.ttft_s for _, one in whole], dtype=float)
    gaps_s = np.concatenate([np.array(one.itl_s) for _, one in whole])
    ended_s = np.array([ask.at_s + one.total_s for ask, one in whole])
    begin_s, end_s = SETTLED_S * seconds / SECONDS, asks[-1].at_s
    return Load(
        over,
        len(asks),
        len(whole),
        sum(one.status == 429 for one in answers),
        sum(one.status != 429 and not one.whole for one in answers),
        (float(np.percentile(ttft_s, 50)), float(np.percentile(ttft_s, 99))),
        float((gaps_s > ITL_MS / 1000).mean()),
        float(((ended_s >= begin_s) & (ended_s < end_s)).sum()) / (end_s - begin_s),
        max(one.late_s for one in answers),
    )


def run(seconds: float = SECONDS) -> Section:
    """All loads on one cluster."""
    with fleet() as deployed:
        deployed.deploy(one_replica())
        wait_reached(URL)
        loaded(0.5, seconds / 5)  # so that its pace is known
        found = [loaded(over, seconds) for over in OVER]
    return section(found)


def section(found: Sequence[Load]) -> Section:
    """The figures with their targets."""
    one, rows = found[0].whole_per_s, []
    for load in found:
        at = f"at {load.over:g}x"
        name, p99 = f"wait_{load.over:g}x", f"TTFT of the accepted {at}, p99"
        rows += [
            Row(f"{name}_ttft_p99", p99, "s", exactly(load.ttft_s[1]), at_most=LONGEST_S),
            Row(f"{name}_late", f"gaps above the SLA {at}", "", exactly(load.late), at_most=0.01),
            Row(f"{name}_errors", f"neither whole nor 429 {at}", "", exactly(load.errors),
                at_most=0),
        ]  # fmt: skip
        if load.over > 1:
            rate, what = load.whole_per_s / one, f"requests/s that end whole {at}, over 1x"
            rows.append(Row(f"{name}_goodput", what, "", exactly(rate), at_least=0.95))
    head = ("load", "sent", "whole", "429", "TTFT p50 s", "p99 s", "whole/s", "client late ms")
    lines = [
        (f"{x.over:g}x", str(x.sent), str(x.whole), str(x.refused), f"{x.ttft_s[0]:.2f}",
         f"{x.ttft_s[1]:.2f}", f"{x.whole_per_s:.2f}", f"{1000 * x.client_late_s:.0f}")
        for x in found
    ]  # fmt: skip
    text = str(__doc__).split("\n\n", 1)[1].strip()
    return Section(
        "Wait", "more than a replica carries, under an ITL alone", text, tuple(rows),
        (markdown_table(head, lines),), max_tokens=None,
    )  # fmt: skip
