"""The command line of benches with parts, each a ``Section``."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report.cached import CachedRuns
from benchmarks.report.document import ROOT
from benchmarks.report.rows import Row, Section, rows_table
from benchmarks.report.seeds import FIRST_SEED
from benchmarks.report.workers import Bench, workers
from controller.errors import BrimfulError
from simulator.replay.values import count

SEEDS = 3
CACHE = ROOT / ".cache"


def parser_of(doc: str | None, parts: Iterable[str], word: str = "PART") -> argparse.ArgumentParser:
    """``--only``, ``--small`` and ``--workers``."""
    names = list(parts)
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar=word)
    parser.add_argument("--small", action="store_true", help="a test run; no file")
    parser.add_argument("--workers", type=count(1024), default=os.cpu_count() or 1)
    return parser


def add_seeds(parser: argparse.ArgumentParser) -> None:
    """``--seeds``: number of seeds."""
    parser.add_argument(
        "--seeds", type=count(100), default=SEEDS, help="number of seeds (default: %(default)s)"
    )


def seeds_of(number: int) -> tuple[int, ...]:
    """The first ``number`` seeds."""
    return tuple(range(FIRST_SEED, FIRST_SEED + number))


@contextmanager
def bench_of(
    args: argparse.Namespace,
    seeds: tuple[int, ...],
    path: Path,
    rivals: tuple[str, ...] = (),
) -> Iterator[Bench]:
    """The workers and settings of a bench, whose results are cached in ``path`` unless it is small.

    Args:
        rivals: only these named rivals; empty: all.
    """
    cache = None if args.small else CachedRuns(path)
    try:
        with workers(args.workers) as pool:
            yield Bench(pool, seeds, args.small, cache, rivals)
    except BrimfulError as error:
        sys.exit(f"error: {error}")


def show(section: Section, took_s: float | None = None) -> None:
    """A part's figures and tables, on stdout."""
    took = "" if took_s is None else f" ({took_s:.0f} s)"
    print(f"\n{section.name}: {section.title}{took}\n\n{rows_table(section.rows)}")
    print(*section.tables, sep="\n\n", flush=True)


def end(bench: str, rows: Iterable[Row]) -> None:
    """The last line: one JSON object."""
    print(json.dumps({"bench": bench, "rows": [row.to_json() for row in rows]}))
