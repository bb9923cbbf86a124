"""R5: the time between tokens as a client sees it, over HTTP on an emulated accelerator.

The stack of ``benchmarks.results.http`` at 0.85 of what a replica carries in the replay. What a
token waits after its step is the server's, and the SLA is to hold there (decision 30).
"""

from collections.abc import Sequence

import ray

from benchmarks.live.client_view import Seen
from benchmarks.report.bootstrap import mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.workers import Bench
from benchmarks.results.g4_phases import PROFILE, SLA
from benchmarks.results.http import REPLICAS, RUN_S, SCALE, WORKLOAD, Stack, capacity, stack, steady
from benchmarks.rivals.settings import Settings
from controller.fleet.actor import find_controller

POLICY = "adaptive"
LOAD = 0.85  # of the capacity
AT_MOST = 1.02  # of the SLA


def run(bench: Bench, names: Sequence[str], settings: Settings) -> Section:
    """A draw for each seed, one after the other on one deployment; nothing else should run."""
    run_s = 8.0 if bench.small else RUN_S
    per_s = bench.map(capacity, [(POLICY, run_s, bench.seeds[0])], "R5 replay")[0]
    with stack((POLICY,)) as deployed:
        found = [_served(deployed, per_s * LOAD, run_s, seed) for seed in bench.seeds]
    seen = [one for one, _ in found]
    assert SLA.itl_ms is not None
    later = [one.later_half().p99_itl_ms / SLA.itl_ms for one in seen]
    whole = [one.p99_itl_ms / SLA.itl_ms for one in seen]
    rows = (
        Row("r5_p99_itl", "p99 ITL at the client over the SLA, later half", "ratio", mean(later),
            at_most=AT_MOST),
        Row("r5_p99_itl_whole", "the same, from the cold start on", "ratio", mean(whole)),
        Row("r5_inside", "share of the requests inside the SLA", "",
            mean([one.inside(SLA) for one in seen])),
    )  # fmt: skip
    lines = [
        (str(seed), shown(one.later_half().p99_itl_ms), shown(one.p99_itl_ms),
         shown(one.later_half().median_ttft_s), ", ".join(map(shown, held)))
        for seed, (one, held) in zip(bench.seeds, found, strict=True)
    ]  # fmt: skip
    head = ("seed", "p99 ITL, ms (later half)", "p99 ITL, ms", "median TTFT, s (later half)",
            "steps held to, of the SLA")  # fmt: skip
    return Section(
        "R5",
        "p99 ITL at the client",
        f"{REPLICAS} replicas behind HAProxy and the router, steps of `{PROFILE}` slept {SCALE:g}"
        f" times slower, a streaming client; `{WORKLOAD}` for {run_s:g} s of the profile's time at"
        f" {LOAD:g} of {shown(per_s)} requests/s per replica, the capacity in the replay. SLA"
        f" {SLA.itl_ms:g} ms at p{SLA.percentile:g}. Seeds {', '.join(map(str, bench.seeds))}, one"
        " after the other on one deployment. The last column: what each replica's steps are held"
        " to at the end, so that tokens leave the server inside the SLA.",
        rows,
        (markdown_table(head, lines),),
    )


def _served(deployed: Stack, per_s: float, run_s: float, seed: int) -> tuple[Seen, list[float]]:
    seen = deployed.serve(POLICY, steady(per_s, run_s, seed), f"R5 seed {seed}")
    groups = ray.get(find_controller().snapshot.remote(), timeout=30)["groups"]
    members = [one for group in groups.values() for one in group["replicas"].values()]
    return seen, [float(one["report"].itl_frac) for one in members]
