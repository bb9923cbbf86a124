"""``make bench-cpu``: control beside vLLM's default and tuned limits, on a real engine on one core.

Every finished run is kept in docs/results/engine-lab.jsonl, so a bench that was stopped goes on
where it was. Prints tables, writes docs/results/engine-lab.md, and ends with one line of JSON.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tqdm import tqdm

from benchmarks.engine_lab.conditions import CONDITIONS, SKIP_S, Condition
from benchmarks.engine_lab.lab import Lab
from benchmarks.engine_lab.report import section
from benchmarks.engine_lab.results import Results
from benchmarks.engine_lab.schedule import Plan, Row, planned_s, rows_of
from benchmarks.engine_lab.tasks import Ground
from benchmarks.report.command import end
from benchmarks.report.document import PAGES, ROOT, write_page
from benchmarks.report.rows import rows_table
from controller.errors import BrimfulError
from serve_app.demo.small_model import FOLDER, make_small_model
from simulator.replay.values import count, number

RESULTS = PAGES / "engine-lab.jsonl"
STEPS = ROOT / ".cache" / "engine-lab"
SLA_MS = 130.0
BAR = "{percentage:3.0f}%|{bar}| {elapsed}, {remaining} left"
SMALL = Plan(rounds=1, shares=(0.8,), tried=1)
SMALL_S, SMALL_SKIP_S, SMALL_SEARCH_S = 10.0, 2.0, 60.0
SMALL_PERCENTILE = 50.0  # a busy machine holds no more in runs of seconds


def _core(text: str) -> int:
    cores = sorted(os.sched_getaffinity(0))
    if text not in map(str, cores):
        allowed = ", ".join(map(str, cores))
        raise argparse.ArgumentTypeError(
            f"{text} is not allowed: a core of this machine: {allowed}"
        )
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [one.name for one in CONDITIONS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="CONDITION")
    parser.add_argument("--rounds", type=count(100), default=Plan().rounds)
    parser.add_argument("--sla-ms", type=number(1, 60_000), default=SLA_MS)
    parser.add_argument(
        "--cores",
        nargs="+",
        type=_core,
        default=[min(os.sched_getaffinity(0))],
        metavar="CORE",
        help="a condition at a time on each",
    )
    parser.add_argument(
        "--model",
        type=Path,
        help=f"a folder that vLLM serves (default: SmolLM2-135M, made in {FOLDER})",
    )
    parser.add_argument("--small", action="store_true", help="only see that it runs; no file")
    return parser


def main() -> int:
    parser = _parser()
    args = parser.parse_args()
    chosen = {one.name: one for one in CONDITIONS if one.name in args.only}
    plan = SMALL if args.small else Plan(rounds=args.rounds)
    results = Results(None if args.small else RESULTS)
    try:
        model = (args.model or make_small_model(ROOT / FOLDER)).absolute()
        grounds = {name: _ground(one, model, args) for name, one in chosen.items()}
        total_s = sum(planned_s(ground, plan) for ground in grounds.values())
        with tqdm(total=total_s, file=sys.stderr, bar_format=BAR) as bar:
            rows = _measure(grounds, plan, args.cores, model, results, bar)
    except BrimfulError as error:
        parser.exit(1, f"error: {error}\n")
    found = section(rows, next(iter(grounds.values())), plan)
    print(rows_table(found.rows))
    print(*found.tables, sep="\n\n")
    if not args.small:
        write_page(found.name, found.markdown(_command(args)))
    end("cpu", found.rows)
    return 0


def _ground(condition: Condition, model: Path, args: argparse.Namespace) -> Ground:
    ground = Ground(model.name, condition.hog, args.sla_ms, condition.seconds, SKIP_S)
    if args.small:
        return replace(
            ground,
            seconds=SMALL_S,
            skip_s=SMALL_SKIP_S,
            search_s=SMALL_SEARCH_S,
            percentile=SMALL_PERCENTILE,
        )
    return ground


def _measure(
    grounds: dict[str, Ground],
    plan: Plan,
    cores: Sequence[int],
    model: Path,
    results: Results,
    bar: "tqdm[Any]",
) -> list[Row]:
    """The rows of all conditions, one condition at a time on each core."""
    labs: SimpleQueue[Lab] = SimpleQueue()

    def rows_on_a_free_core(name: str) -> list[Row]:
        lab = labs.get()
        try:
            return rows_of(name, grounds[name], plan, lab.do)
        finally:
            labs.put(lab)

    with ThreadPoolExecutor(len(cores)) as threads, ExitStack() as stack:
        for core in cores:
            labs.put(stack.enter_context(Lab(core, model, results, STEPS, bar)))
        return [row for rows in threads.map(rows_on_a_free_core, grounds) for row in rows]


def _command(args: argparse.Namespace) -> str:
    given = []
    if len(args.only) < len(CONDITIONS):
        given += ["--only", *args.only]
    if args.rounds != Plan().rounds:
        given += ["--rounds", str(args.rounds)]
    if args.sla_ms != SLA_MS:
        given += ["--sla-ms", f"{args.sla_ms:g}"]
    return "make bench-cpu" + (f" ARGS='{' '.join(given)}'" if given else "")


if __name__ == "__main__":
    sys.exit(main())
