"""The ``brimful`` command. Each subcommand's module is imported only when it is called."""

import argparse
import importlib
import sys
from collections.abc import Sequence

from controller.errors import BrimfulError

# name: (module with add_arguments(parser) and run(args) -> exit status, one line of help)
COMMANDS = {
    "check": ("serve_app.checks.command", "validate a Serve config or RayService manifest"),
    "status": ("serve_app.status", "show what the batch controller of a running cluster knows"),
    "explain": ("serve_app.explain", "say what bound each replica of a running cluster, and why"),
    "enforce": ("serve_app.enforce", "switch control off or on while everything runs"),
    "demo": (
        "benchmarks.live.demo",
        "deploy on this machine, send real requests, show the caps move",
    ),
    "tiny-model": (
        "benchmarks.live.tiny_model",
        "make a tiny random-weight model to try things with",
    ),
    "replay": (
        "benchmarks.replay.command",
        "replay a workload in virtual time under one or more policies",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; errors of ours become one message each and exit status 2."""
    parser = argparse.ArgumentParser(prog="brimful", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    argv = sys.argv[1:] if argv is None else argv
    for name, (module, summary) in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=summary)
        if name in argv[:1]:
            loaded = importlib.import_module(module)
            loaded.add_arguments(sub)
            sub.set_defaults(run=loaded.run)
    args = parser.parse_args(argv)
    try:
        return int(args.run(args))
    except BrimfulError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
