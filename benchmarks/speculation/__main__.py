"""How many tokens to draft: off, fixed numbers, and vLLM's table by batch size.

Capacity inside the SLA, time per token at low load, and a day of both, in virtual time. What ran is
kept; a run that was stopped goes on where it was.
"""

from benchmarks.report.command import CACHE, bench_of, end, parser_of
from benchmarks.report.document import write_page
from benchmarks.report.rows import Section
from benchmarks.report.seeds import FIRST_SEED
from benchmarks.speculation.figures import (
    capacity_table,
    day_table,
    figures,
    rows_of_days,
)
from benchmarks.speculation.measure import (
    KNOWN,
    OFF,
    TABLE,
    TUNED_FOR,
    Case,
    DayTask,
    Task,
    measure,
    measure_day,
)

NAME = "speculation"
PARTS = "capacity", "days"
FIXED = ("1", "2", "3", "5")
CASES = tuple(Case("paper-fig3", acceptance) for acceptance in (0.5, TUNED_FOR, 0.9))
SHIFT = 0.9, 0.5
DAYS = (TUNED_FOR,), SHIFT
TEXT = (
    "`adaptive` on exponential lengths of 257 in, 62 out, D 50 ms, TTFT 2 s. Drafting one token "
    "for the batch takes 4% of a step of one decode (a head of one layer), verifying one what a "
    "prompt token takes. Numbers are drafts in each step; `table`: vLLM's "
    "`num_speculative_tokens_per_batch_size` with the most tokens/s at each batch size by true "
    "step times, lengths and acceptance (`benchmarks/speculation/table.py`). Capacity: the "
    "highest rate at which the second half of a run holds the SLA at p99; low load: a fifth of "
    "the fluid limit without drafts. A day has five phases: 0.2, 0.5, 0.85, 0.5, 0.2 of that "
    "limit; its table is for an acceptance of 0.7. `known` has the "
    "table of each acceptance: what a choice could earn at most that follows acceptance while "
    "engines run. A day counts where 1% of the deliveries are late at most and p99 of TTFT is "
    "within 2 s; tokens/s of a request are one over the mean time per token."
)


def main() -> None:
    args = parser_of(__doc__, PARTS).parse_args()
    tasks = [
        Task(case, arm, FIRST_SEED, args.small)
        for number, case in enumerate(CASES)
        for arm in (OFF, *FIXED, TABLE)
        if arm != OFF or not number  # without drafts acceptance does not matter
    ]
    days = [
        DayTask(acceptances, arm, FIRST_SEED, args.small)
        for acceptances in DAYS
        for arm in (OFF, *FIXED, TABLE, *([KNOWN] if acceptances == SHIFT else []))
    ]
    tasks = tasks if "capacity" in args.only else []
    days = days if "days" in args.only else []
    with bench_of(args, (FIRST_SEED,), CACHE / f"{NAME}.sqlite", [measure.__module__]) as bench:
        by_day = dict(zip(days, bench.map(measure_day, days, "days"), strict=True))
        found = dict(zip(tasks, bench.map(measure, tasks, "capacity"), strict=True))
    rows = (*figures(found), *rows_of_days(by_day))
    tables = tuple(one for one in (capacity_table(found), day_table(by_day)) if one)
    section = Section("S1", "drafts by batch size", TEXT, rows, tables)
    text = section.markdown("python -m benchmarks speculation")
    print(text)
    if not args.small and set(args.only) == set(PARTS):
        write_page(NAME, text)
    end(NAME, rows)


if __name__ == "__main__":
    main()
