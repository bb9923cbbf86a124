"""Agents whose turns come back within seconds, by who gets which turn.

Four virtual engines with prefix caching, and conversations of ``brimful replay --workload agents``:
a turn comes when the answer before it has ended and its tool has run.
"""

import argparse
import time
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.agents.measure import (
    AGENTS,
    ALONE,
    ARMS,
    CHANGE_S,
    COLD_S,
    END_S,
    ENGINES,
    EQUAL,
    INDEPENDENT,
    JOINS,
    LEAVES,
    OURS,
    POLICY,
    PROFILE,
    SHARED,
    SLA,
    SLOW,
    SLOWER,
    SMALL,
    SMALL_KV,
    STICKY,
    WITHOUT,
    AgentsTask,
    Found,
    measure,
    ratio,
)
from benchmarks.report.bootstrap import mean
from benchmarks.report.command import CACHE, add_seeds, bench_of, end, parser_of, seeds_of, show
from benchmarks.report.document import markdown_table, write_page
from benchmarks.report.rows import Row, Section, shown
from simulator.workloads.conversations import DEFAULTS, SYSTEM_TOKENS

LOADS = {"light": 0.2, "heavy": 0.4}  # conversations that begin in a second
ALONE_PER_S = {INDEPENDENT: 24.0, SHARED: 24.0}
FLEETS = {  # that are compared with a hash alone: conversations that begin in a second, and what
    SMALL: (0.4, f"engines of {SMALL_KV:,} tokens of KV memory"),
    SLOW: (0.3, f"one engine whose steps take {SLOWER:g} times as long"),
    JOINS: (0.3, f"one engine joins at {CHANGE_S:g} s"),
    LEAVES: (0.3, f"one engine is sent nothing from {CHANGE_S:g} s on"),
}
By = Mapping[tuple[str, float, str, str], Sequence[Found]]
TURNS, TOOL, OUT, PAUSE_S = DEFAULTS
TEXT = (
    f"{ENGINES} engines of `{PROFILE}` in virtual time, `{POLICY}` with {SLA.itl_ms:g} ms between"
    f" tokens and {SLA.ttft_ms:g} ms to the first, vLLM's prefix caching. Conversations begin at a"
    f" rate ({LOADS['light']:g} and {LOADS['heavy']:g}/s for the fleet, Poisson) and have"
    f" {TURNS:g} turns (median; lognormal), a system prompt of {SYSTEM_TOKENS:,} tokens that all"
    f" share, tool results of {TOOL:g} and answers of {OUT:g} tokens (means), and pauses of"
    f" {PAUSE_S:g} s (median; 86% within a second). These distributions are made up: no public"
    f" table holds turns. Requests that come from {COLD_S:g} to {END_S:g} s count; who has no first"
    " token counts with its wait so far. Goodput: those that met the SLA. `held` is"
    " `prefix_affinity`, `headroom` the same router without it, `sticky` a hash of the conversation"
    " (where its engine is not there, over those that are). One router sees all requests."
    " Single requests come for 20 s, and all of them count: `independent` share nothing, `shared`"
    " the system prompt."
)


def rows(by: By) -> tuple[Row, ...]:
    """The figures with their targets."""

    def of(
        traffic: str, per_s: float, arm: str, fleet: str = EQUAL
    ) -> tuple[list[float], list[float]]:
        found = by[traffic, per_s, arm, fleet]
        return [one.ttft_s[2] for one in found], [one.goodput_per_s for one in found]

    made: list[Row] = []
    for name, per_s in LOADS.items():
        ours, without = of(AGENTS, per_s, OURS), of(AGENTS, per_s, WITHOUT)
        others = [of(AGENTS, per_s, arm) for arm in ARMS if arm != OURS]
        best = [min(column) for column in zip(*(ttft for ttft, _ in others), strict=True)]
        most = [max(column) for column in zip(*(good for _, good in others), strict=True)]
        told = f"{name} load"
        made += [
            Row(f"agents_{name}_ttft", f"p99 TTFT over headroom's, {told}", "",
                mean(ratio(ours[0], without[0])), at_most=0.7),
            Row(f"agents_{name}_goodput", f"goodput over headroom's, {told}", "",
                mean(ratio(ours[1], without[1])), at_least=1.2),
            Row(f"agents_{name}_ttft_best", f"p99 TTFT over the best other's, {told}", "",
                mean(ratio(ours[0], best))),
            Row(f"agents_{name}_goodput_best", f"goodput over the best other's, {told}", "",
                mean(ratio(ours[1], most))),
        ]  # fmt: skip
    for fleet, (per_s, told) in FLEETS.items():
        ours, sticky = (of(AGENTS, per_s, arm, fleet) for arm in (OURS, STICKY))
        made += [
            Row(f"agents_{fleet}_ttft", f"p99 TTFT over sticky's, {told}", "",
                mean(ratio(ours[0], sticky[0])), at_most=None if fleet == SMALL else 1.0),
            Row(f"agents_{fleet}_goodput", f"goodput over sticky's, {told}", "",
                mean(ratio(ours[1], sticky[1]))),
        ]  # fmt: skip
    for traffic, per_s in ALONE_PER_S.items():
        ours, without = of(traffic, per_s, OURS), of(traffic, per_s, WITHOUT)
        told = f"single requests, {traffic}"
        made += [
            Row(f"agents_{traffic}_ttft", f"p99 TTFT over headroom's, {told}", "",
                mean(ratio(ours[0], without[0])), at_most=1.0),
            Row(f"agents_{traffic}_goodput", f"goodput over headroom's, {told}", "",
                mean(ratio(ours[1], without[1])), at_least=1.0),
        ]  # fmt: skip
    return tuple(made)


def tables(by: By) -> tuple[str, ...]:
    """Every arm, the means over the seeds."""
    head = ("router", "mean TTFT, s", "p50", "p99", "goodput/s", "computed", "requests")
    made = []
    for traffic, per_s, fleet in dict.fromkeys((key[0], key[1], key[3]) for key in by):
        lines = [
            (
                f"`{arm}`",
                *(shown(float(np.mean([one.ttft_s[k] for one in found]))) for k in range(3)),
                shown(float(np.mean([one.goodput_per_s for one in found]))),
                f"{np.mean([one.computed_frac for one in found]):.1%}",
                f"{np.mean([one.turns for one in found]):.0f}",
            )
            for (of, at, arm, among), found in by.items()
            if (of, at, among) == (traffic, per_s, fleet)
        ]
        what = "conversations" if traffic == AGENTS else f"requests of `{ALONE}`, {traffic}"
        told = "" if fleet == EQUAL else f", {FLEETS[fleet][1]}"
        made.append(f"{per_s:g} {what} a second{told}:\n\n{markdown_table(head, lines)}")
    return tuple(made)


def main() -> None:
    parser: argparse.ArgumentParser = parser_of(__doc__, ARMS, "ARM")
    add_seeds(parser)
    parser.add_argument("--write", action="store_true", help="docs/results/agents.md as well")
    args = parser.parse_args()
    seeds, begun_s = seeds_of(args.seeds), time.monotonic()
    cases = [
        (AGENTS, per_s, arm, EQUAL) for per_s in LOADS.values() for arm in ARMS if arm in args.only
    ]
    cases += [
        (AGENTS, per_s, arm, fleet)
        for fleet, (per_s, _) in FLEETS.items()
        for arm in (OURS, STICKY)
    ]
    cases += [
        (of, per_s, arm, EQUAL) for of, per_s in ALONE_PER_S.items() for arm in (OURS, WITHOUT)
    ]

    def task(case: tuple[str, float, str, str], seed: int) -> AgentsTask:
        traffic, per_s, arm, fleet = case
        return AgentsTask(traffic, per_s, arm, seed, args.small or traffic != AGENTS, fleet)

    tasks = [task(case, seed) for seed in seeds for case in cases]
    with bench_of(args, seeds, CACHE / "agents.sqlite", ("benchmarks.agents.measure",)) as bench:
        found = dict(zip(tasks, bench.map(measure, tasks, "agents"), strict=True))
    by = {case: [found[task(case, seed)] for seed in seeds] for case in cases}
    whole = len(args.only) == len(ARMS)
    section = Section(
        "Agents", "turns that come back within seconds", TEXT, rows(by) if whole else (), tables(by)
    )
    show(section, time.monotonic() - begun_s)
    if args.write and whole and not args.small:
        write_page(
            "agents", section.markdown(f"python -m benchmarks agents --seeds {args.seeds} --write")
        )
    end("agents", section.rows)


if __name__ == "__main__":
    main()
