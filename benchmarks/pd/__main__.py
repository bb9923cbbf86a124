"""Prefill and decode apart, under one control, in virtual time (``make bench-pd``).

Capacity inside the SLA of a fleet whose engines all do both, of fixed ratios, and of ``auto``,
which chooses the number of prefill engines and the route of each request. Results are cached, so a
run that was stopped can be continued. 2744ba77 also has Ray's ratio and the rules of Dynamo and
TaiChi.
"""

from benchmarks.pd.measure import Task, measure
from benchmarks.pd.table import (
    ENGINES,
    ITLS_MS,
    LINKS_GBIT_S,
    WORKLOADS,
    arms_of,
    cases_of,
    figures,
    table,
    without_link,
)
from benchmarks.report.command import CACHE, bench_of, end, parser_of, show
from benchmarks.report.document import write_page
from benchmarks.report.rows import Section
from benchmarks.report.seeds import FIRST_SEED

TEXT = (
    "Engines of `paper-fig3`, 327,680 bytes of KV a token (a 70B model with GQA), 5 ms latency"
    " of a transfer. Capacity: the highest rate of an engine at which in the second half of a"
    " run p99 of the gaps between tokens is within D and p99 of the time to first token within 2"
    " s; the first token is the decode engine's. One seed a row; the first 20 s at"
    " half the rate. `P:D`: prefill and decode engines, all with `adaptive`; no prompt is computed"
    " on a decode engine. `auto` begins with all engines mixed and knows nothing of the workload."
)


def main() -> None:
    parser = parser_of(__doc__, WORKLOADS, "WORKLOAD")
    parser.add_argument("--engines", type=int, nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--itl-ms", type=float, nargs="+", choices=ITLS_MS, default=list(ITLS_MS))
    parser.add_argument(
        "--fixed",
        type=int,
        default=2,
        help="ratios of a case, the best by fluid arithmetic; 0: all",
    )
    args = parser.parse_args()
    tasks = [
        Task(case, arm, FIRST_SEED, args.small)
        for case in cases_of(args.engines, args.only, args.itl_ms, LINKS_GBIT_S)
        for arm in arms_of(case, FIRST_SEED, args.fixed)
    ]
    runs = list(dict.fromkeys(map(without_link, tasks)))
    with bench_of(args, (FIRST_SEED,), CACHE / "pd.sqlite") as bench:
        of = dict(zip(runs, bench.map(measure, runs, "pd"), strict=True))
    per_s = {task: of[without_link(task)] for task in tasks}
    rows, tables = tuple(figures(per_s)), (table(per_s),)
    section = Section("pd", "prefill and decode apart", TEXT, rows, tables)
    show(section)
    whole = set(args.only) == set(WORKLOADS) and args.itl_ms == list(ITLS_MS)
    if whole and not args.small:
        name = "-".join(["pd", *map(str, args.engines)])
        options = f"--fixed {args.fixed} --engines"
        given = " ".join([options, *map(str, args.engines)])
        write_page(name, section.markdown(f"make bench-pd ARGS='{given}'"))
    end("pd", section.rows)


if __name__ == "__main__":
    main()
