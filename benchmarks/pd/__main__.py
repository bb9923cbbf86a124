"""Prefill and decode apart, under one control, in virtual time (``make bench-pd``).

Capacity inside the SLA of a fleet whose engines all do both, of each fixed ratio, of Ray's as
shipped, of the rules of Dynamo and TaiChi, and of ``auto``, which chooses how many engines compute
prompts and which way each request takes; with ``--shift`` the share that is inside the SLA
while the mix changes, with ``--days`` replica-hours with autoscaling. What ran is kept; a run that
was stopped goes on where it was.
"""

import argparse
import sys

from benchmarks.pd import page
from benchmarks.pd.days import (
    DAYS,
    MIX,
    day_table,
    measure_day,
    rows_of_days,
    tasks_of,
)
from benchmarks.pd.fluid import measure_fluid
from benchmarks.pd.measure import Task, measure
from benchmarks.pd.shift import Shift, arms_of_shift, measure_shift, rows_of_shift, shift_table
from benchmarks.pd.table import (
    ENGINES,
    ITLS_MS,
    LINKS_GBIT_S,
    RIVALS,
    WORKLOADS,
    arms_of,
    figures,
    rows_of,
    table,
    whole_rows,
    without_link,
)
from benchmarks.report.command import end
from benchmarks.report.document import PAGES, ROOT, write_page
from benchmarks.report.kept import KeptRuns
from benchmarks.report.rows import Section
from benchmarks.report.seeds import FIRST_SEED
from benchmarks.report.workers import Bench, workers
from controller.errors import BrimfulError

KEPT = ROOT / ".cache" / "pd.sqlite"
TEXT = (
    "Engines of `paper-fig3`, 327,680 bytes of KV a token (a 70B model with GQA), 5 ms latency"
    " of a transfer. Capacity: the highest rate of an engine at which in the second half of a"
    " run p99 of the gaps between tokens is within D and p99 of the time to first token within 2"
    " s; the first token is the decode engine's. One draw of requests a row; the first 20 s at"
    " half the rate. `P:D`: so many engines compute prompts, `adaptive` in all, no prompt goes"
    " direct. `stock:P:D`: Ray's PD as shipped, vLLM's default limits, pairs by power of two"
    " choices. `dynamo:P:D`: Dynamo's planner, which begins so and decides every 60 s;"
    " `taichi:P:D`: TaiChi's rule for prompts with the ratio that the closed form finds best;"
    " both with `adaptive` in all and more told than they would know (`benchmarks/pd/dynamo.py`,"
    " `taichi.py`). `auto` begins with all engines mixed and knows nothing of the workload. The"
    " fluid columns are the closed form of `controller.roles` on the true step times and"
    " lengths. Days are whole ones, in the fluid fleet of `brimful fleet`, each with its highest"
    " step at the capacity of twenty aggregated engines; both sides scale by `brimful` with its"
    " defaults, 100 s a start; `mix`: two hours of 257/62, then two of 257/447, at half of that"
    " work."
)

FLUID_TEXT = (
    "As in [the replay](../prefill-decode.md#measured), in the fluid fleet of `brimful fleet`:"
    " a rate holds where 99% of the requests of a run's second half are inside the SLA. Runs of"
    " 2,400 engine-seconds, 5 minutes at least; roles are decided every 10 s."
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--engines", type=int, nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--itl-ms", type=float, nargs="+", choices=ITLS_MS, default=list(ITLS_MS))
    parser.add_argument(
        "--link-gbit-s", type=float, nargs="+", choices=LINKS_GBIT_S, default=list(LINKS_GBIT_S)
    )
    parser.add_argument(
        "--fixed", type=int, default=2, help="ratios of a row, the best by fluid arithmetic; 0: all"
    )
    parser.add_argument(
        "--rivals", nargs="*", choices=list(RIVALS), default=list(RIVALS), help="beside ratios"
    )
    parser.add_argument(
        "--fluid", action="store_true", help="capacities in the fluid fleet, without rivals"
    )
    parser.add_argument("--shift", action="store_true", help="traffic whose mix changes instead")
    parser.add_argument(
        "--days",
        nargs="*",
        choices=(*DAYS, MIX),
        help="autoscaling over these days instead, mix: 257/62, then 257/447 (default: all;"
        " one minute each and side)",
    )
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="of the requests")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="only see that it runs")
    parser.add_argument("--kept", action="store_true", help="run nothing: what is kept, by row")
    parser.add_argument("--write", action="store_true", help="a page in docs/results as well")
    args = parser.parse_args()
    capacity = measure_fluid if args.fluid else measure
    if args.fluid:
        args.rivals = []
    rows = rows_of(args.engines, args.workloads, args.itl_ms, args.link_gbit_s)
    modules = (capacity.__module__, measure_shift.__module__, measure_day.__module__)
    kept = None if args.small else KeptRuns(KEPT, modules)
    tasks = [
        Task(row, arm, args.seed, args.small)
        for row in rows
        for arm in arms_of(row, args.seed, args.fixed, args.rivals)
    ]
    shifts = [
        Shift(4, ITLS_MS[0], LINKS_GBIT_S[-1], arm, args.seed, args.small)
        for arm in arms_of_shift(args.rivals)
    ]
    every = (*DAYS, MIX)
    asked_days = every if args.kept or args.days == [] else args.days or ()
    days = tasks_of(asked_days, ITLS_MS[0], args.link_gbit_s, args.seed, small=args.small)
    if args.shift or args.days is not None:
        tasks = []
    runs = list(dict.fromkeys(map(without_link, tasks)))
    try:
        if args.kept and kept:
            of = {one: got[0] for one in runs if (got := kept.get(capacity, one, ours=True))}
            shifted = {
                one: got[0] for one in shifts if (got := kept.get(measure_shift, one, ours=True))
            }
            by_day = {one: got[0] for one in days if (got := kept.get(measure_day, one, ours=True))}
        else:
            with workers(args.workers) as pool:
                bench = Bench(pool, (args.seed,), args.small, kept)
                of = dict(zip(runs, bench.map(capacity, runs, "P1"), strict=True))
                shifts = shifts if args.shift else []
                found = bench.map(measure_shift, shifts, "shift")
                shifted = dict(zip(shifts, found, strict=True))
                by_day = dict(zip(days, bench.map(measure_day, days, "P2"), strict=True))
    except BrimfulError as error:
        sys.exit(f"error: {error}")
    per_s = whole_rows({task: of[run] for task in tasks if (run := without_link(task)) in of})
    tables = (table(per_s, args.seed), shift_table(shifted), day_table(by_day))
    section = Section(
        "P1",
        "prefill and decode apart",
        FLUID_TEXT if args.fluid else TEXT,
        (*figures(per_s), *rows_of_shift(shifted), *rows_of_days(by_day)),
        tuple(one for one in tables if one),
    )
    parts = {"fluid": args.fluid, "shift": args.shift, "16": args.engines == [16]}
    name = "-".join(["pd", *(part for part, asked in parts.items() if asked)])
    given = " ".join(word for word in sys.argv[1:] if word not in ("--kept", "--write"))
    text = section.markdown(f"make bench-pd ARGS='{given}'" if given else "make bench-pd")
    print(text)
    if args.write:
        if per_s:
            page.draw(per_s, PAGES / f"{name}.png")
            text += f"\n\n![Capacity of each arm over aggregated engines]({name}.png)"
        write_page(name, text)
    end("pd", section.rows)


if __name__ == "__main__":
    main()
