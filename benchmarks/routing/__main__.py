"""One replica of four at half speed: HeadroomRouter beside the other ways (``make bench-routing``).

Over HTTP: HAProxy, LLMRouter, engines, scheduler and controller are real, steps are slept. Beside
it the same fleet in virtual time, where there is room for many more requests.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.live.client_view import Seen
from benchmarks.report.bootstrap import geometric_mean
from benchmarks.report.document import markdown_table, write_page
from benchmarks.report.rows import Row, Section, exactly, shown
from benchmarks.routing import gathered
from benchmarks.routing.fleet import ROUTERS, Served, Speed, serve
from benchmarks.routing.stack import application, fleet
from controller.config import Sla
from replicas.profile_file import load_profile
from simulator.replay.fluid import fluid_limit_per_s
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request, length_stats
from simulator.workloads.traffic import draw_traffic

PROFILE, WORKLOAD = "paper-fig3", "azure-2023-conversation"
SLA = Sla(itl_ms=50, ttft_ms=2000)
REPLICAS, SPEED = 4, 3.5  # one of them at half
TARGET = 0.8
OVER_HTTP = ("round_robin", "power_of_two", "least_load", "headroom")
WARM_UP_S = 6.0
LONGEST = 400  # tokens of an answer, nine tenths of them are shorter: or a run would not end
VIRTUAL_RATE_PER_S, VIRTUAL_S = 20.0, 60.0  # 0.75 of what that fleet carries


@dataclass(frozen=True, slots=True)
class Figures:
    """What clients saw of one router: seconds, milliseconds, the share inside the SLA."""

    p50_ttft_s: float
    p99_ttft_s: float
    p99_itl_ms: float
    inside: float
    failed: int = 0

    def line(self) -> tuple[str, ...]:
        """For a table."""
        times = self.p50_ttft_s, self.p99_ttft_s, self.p99_itl_ms
        return (*map(shown, times), f"{self.inside:.3f}", str(self.failed))


HEAD = ("p50 TTFT, s", "p99 TTFT, s", "p99 ITL, ms", "share inside the SLA", "not served")


def of_seen(seen: Seen, failed: int) -> Figures:
    """Over HTTP; who was not served is not inside."""
    ttft_s = np.nan_to_num(seen.ttft_s, nan=np.inf)
    share = seen.inside(SLA) * len(ttft_s) / (len(ttft_s) + failed)
    p50, p99 = (float(np.percentile(ttft_s, q)) for q in (50, 99))
    return Figures(p50, p99, seen.p99_itl_ms, share, failed)


def of_served(served: Sequence[Served]) -> Figures:
    """In virtual time."""
    ttft_s = np.array([one.ttft_s for one in served])
    gaps_ms = np.concatenate([one.gaps_s for one in served if one.gaps_s]) * 1000
    mean_ms = np.array([np.mean(one.gaps_s) * 1000 if one.gaps_s else 0.0 for one in served])
    itl_ms, ttft_ms = SLA.itl_ms or np.inf, SLA.ttft_ms or np.inf
    inside = (ttft_s * 1000 <= ttft_ms) & (mean_ms <= itl_ms)
    p50, p99 = (float(np.percentile(ttft_s, q)) for q in (50, 99))
    return Figures(p50, p99, float(np.percentile(gaps_ms, 99)), float(inside.mean()))


def over_http(seconds: float, load: float, time_scale: float, seed: int) -> dict[str, Figures]:
    """The same requests under each router, one after the other, on one deployed fleet."""
    profile, workload = load_profile(PROFILE), load_workload(WORKLOAD)
    stats = length_stats(_cut(draw_traffic(workload, 5000, None, seed).requests))
    rate_per_s = load * SPEED * fluid_limit_per_s(profile, stats, SLA.itl_s)
    router = {
        "request_router_class": "benchmarks.routing.router:ByName",
        "request_routing_stats_period_s": 0.5,
    }
    app = application(PROFILE, SLA, REPLICAS, time_scale, router)

    def requests(length_s: float, its_seed: int) -> tuple[Request, ...]:
        n = max(round(rate_per_s * length_s), 8)
        return _cut(draw_traffic(workload, n, None, its_seed).at(rate_per_s))

    with fleet(app, REPLICAS, time_scale) as deployed:
        deployed.serve("headroom", requests(WARM_UP_S, seed + 1))
        measured = requests(seconds, seed)
        return {name: of_seen(*deployed.serve(name, measured)) for name in OVER_HTTP}


def _cut(requests: Sequence[Request]) -> tuple[Request, ...]:
    return tuple(replace(r, output_tokens=min(r.output_tokens, LONGEST)) for r in requests)


def in_virtual_time(seeds: Sequence[int]) -> dict[str, list[Figures]]:
    """Each router under the same requests, a run per seed."""
    speeds = [Speed()] * (REPLICAS - 1) + [Speed().slower(2)]
    n = round(VIRTUAL_RATE_PER_S * VIRTUAL_S)
    workload = load_workload(WORKLOAD)
    found: dict[str, list[Figures]] = {name: [] for name in ROUTERS}
    for seed in seeds:
        asked = draw_traffic(workload, n, None, seed).at(VIRTUAL_RATE_PER_S)
        for name, runs in found.items():
            runs.append(of_served(serve(name, speeds, asked, seed)))
    return found


def section(
    http: dict[str, Figures], virtual: dict[str, list[Figures]], settings: argparse.Namespace
) -> Section:
    """The figures with their targets, and the tables they were made from."""
    ours, others = http["headroom"], [f for name, f in http.items() if name != "headroom"]
    best = min(one.p99_ttft_s for one in others)
    runs = len(virtual["headroom"])
    ratios = [
        virtual["headroom"][k].p99_ttft_s
        / min(figures[k].p99_ttft_s for name, figures in virtual.items() if name != "headroom")
        for k in range(runs)
    ]
    rows = (
        Row(
            "routing_ttft",
            "p99 TTFT over that of the best other router",
            "",
            exactly(ours.p99_ttft_s / best),
            at_most=TARGET,
        ),
        Row(
            "routing_itl",
            "p99 ITL over that of the best other router",
            "",
            exactly(ours.p99_itl_ms / min(one.p99_itl_ms for one in others)),
        ),
        Row(
            "routing_goodput",
            "share inside the SLA over that of the best other router",
            "",
            exactly(ours.inside / max(max(one.inside for one in others), 1e-3)),
        ),
        Row(
            "routing_virtual_ttft",
            "p99 TTFT over that of the best other router, in virtual time",
            "",
            geometric_mean([ratios]),
            at_most=TARGET,
        ),
    )
    middle = {name: _medians(figures) for name, figures in virtual.items()}
    text = (
        f"{REPLICAS} replicas, one at half speed, lengths of `{WORKLOAD}`, Poisson arrivals at"
        f" {settings.load:g} of what the fleet carries, SLA {SLA.itl_ms:g} ms between tokens and"
        f" {SLA.ttft_ms:g} ms to the first. Over HTTP: steps of `{PROFILE}` slept"
        f" {settings.time_scale:g} times slower, {settings.seconds:g} s of its time, the same"
        " requests for each router one after the other, by a streaming client behind HAProxy and"
        f" the LLMRouter, which sees the prompts; answers are cut at {LONGEST} tokens."
        " `round_robin` and `power_of_two` are Ray Serve's own; under direct streaming the latter"
        " draws one replica at random. `least_load`: the fewest running and waiting requests by the"
        f" last statistics. In virtual time: {runs} draws of {VIRTUAL_S:g} s at"
        f" {VIRTUAL_RATE_PER_S:g} requests/s, medians; `outstanding` is power of two choices by"
        " requests that have not ended, and `haproxy` its leastconn over all replicas, both known"
        " exactly, as they are where all requests come through one HAProxy."
    )
    tables = (
        "Over HTTP:\n\n" + _table(http),
        "In virtual time:\n\n" + _table(middle),
    )
    return Section(
        "Routing", "one replica of four at half speed", text, rows, tables, max_tokens=None
    )


def _medians(runs: Sequence[Figures]) -> Figures:
    p50, p99, itl, inside = (
        float(np.median([getattr(one, key) for one in runs]))
        for key in ("p50_ttft_s", "p99_ttft_s", "p99_itl_ms", "inside")
    )
    return Figures(p50, p99, itl, inside)


def _table(figures: dict[str, Figures]) -> str:
    lines = [(f"`{name}`", *one.line()) for name, one in figures.items()]
    return markdown_table(("router", *HEAD), lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-routing ARGS=", description=__doc__)
    parser.add_argument("--seconds", type=float, default=24.0, help="of the profile's time")
    parser.add_argument("--time-scale", type=float, default=2.0, help="steps are so much slower")
    parser.add_argument("--load", type=float, default=0.75, help="share of what the fleet carries")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5, help="draws in virtual time")
    parser.add_argument("--write", action="store_true", help="docs/results/routing.md as well")
    parser.add_argument(
        "--gathered", action="store_true", help="instead: which replica requests of classes go to"
    )
    settings = parser.parse_args()
    if settings.gathered:
        found, table = gathered.run()
        print(table)
        print(json.dumps({"bench": "routing", "rows": [row.to_json() for row in found]}))
        return
    http = over_http(settings.seconds, settings.load, settings.time_scale, settings.seed)
    virtual = in_virtual_time(range(settings.seed, settings.seed + settings.runs))
    page = section(http, virtual, settings)
    text = page.markdown("make bench-routing ARGS=--write")
    print(text)
    if settings.write:
        write_page("routing", text)
    rows = [row.to_json() for row in page.rows]
    for name, one in http.items():
        for id_, value, unit in (
            ("p99_ttft", one.p99_ttft_s, "s"),
            ("p99_itl", one.p99_itl_ms, "ms"),
            ("inside", one.inside, ""),
        ):
            rows.append(
                {"id": f"routing_{id_}_{name}", "value": value, "unit": unit, "target": None}
            )
    print(json.dumps({"bench": "routing", "rows": rows}))


if __name__ == "__main__":
    main()
