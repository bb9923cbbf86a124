"""Options that several commands take, and numbers on a command line."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path

from controller.errors import ConfigError

ABOVE_0 = math.ulp(0.0)


def number(allowed: str, least: float, most: float = math.inf) -> Callable[[str], float]:
    """A finite number from ``least`` to ``most``, which an error calls ``allowed``."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most or value == math.inf:
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed: {allowed}")
        return value

    return number


def add_address(parser: argparse.ArgumentParser) -> None:
    """``--address``, of every command that reads a running cluster."""
    parser.add_argument(
        "--address",
        default="auto",
        metavar="HOST:PORT",
        help="address of Ray's head node (default: RAY_ADDRESS, else the cluster on this machine)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object, for scripts")


def add_wide(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wide", action="store_true", help="all columns, however wide")


def add_group(parser: argparse.ArgumentParser, which: str) -> None:
    parser.add_argument("--group", metavar="NAME", help=which)


def add_replica(parser: argparse.ArgumentParser) -> None:
    shown = "as `brimful status` shows it (default: the first by id)"
    parser.add_argument("--replica", metavar="ID", help=shown)


def add_out(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help=what)


def require_folder(out: Path) -> None:
    """Raise ``ConfigError`` if a file of ``--out`` could not be made."""
    if not out.parent.is_dir():
        raise ConfigError([f"--out: {out.parent} is not allowed: an existing folder"])


above_0 = number("a number above 0", ABOVE_0)
