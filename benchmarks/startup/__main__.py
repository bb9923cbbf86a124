"""``make bench-startup``: `serve deploy` to the first token by phases, and memory by process.

Prints tables, writes docs/results/startup.md, and ends with one line of JSON. Nothing else should
run on the machine.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Sequence

from tqdm import tqdm

from benchmarks.report.document import write_page
from benchmarks.report.rows import rows_table
from benchmarks.startup.caches import STATES
from benchmarks.startup.measure import Start, start
from benchmarks.startup.report import section

# State and executor, in this order: each warm start comes right after another one.
STARTS = (
    ("no bytecode", "in_process"),
    ("cold", "in_process"),
    ("warm", "in_process"),
    ("warm", "mp"),
)
EXECUTORS = ("in_process", "mp")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-startup", description=__doc__)
    parser.add_argument("--states", nargs="+", choices=STATES, default=STATES)
    parser.add_argument("--executors", nargs="+", choices=EXECUTORS, default=EXECUTORS)
    parser.add_argument("--no-page", action="store_true", help="print only")
    args = parser.parse_args()
    chosen = [one for one in STARTS if one[0] in args.states and one[1] in args.executors]
    if not chosen:
        parser.error("mp is started warm only")
    result = section(list(_run(chosen)))
    print(rows_table(result.rows))
    print(*result.tables, sep="\n\n")
    if not args.no_page:
        write_page(result.name, result.markdown(_command()))
    print(json.dumps({"bench": "startup", "rows": [row.to_json() for row in result.rows]}))


def _run(chosen: Sequence[tuple[str, str]]) -> Iterator[Start]:
    # A replica is added once, to the last that starts with ours.
    ours = [index for index, (_, executor) in enumerate(chosen) if executor == "in_process"]
    for index, (state, executor) in enumerate(tqdm(chosen, desc="starts", file=sys.stderr)):
        yield start(state, executor, add_replica=index == max(ours, default=-1))


def _command() -> str:
    arguments = shlex.join(sys.argv[1:])
    return f"make bench-startup ARGS='{arguments}'" if arguments else "make bench-startup"


if __name__ == "__main__":
    main()
