"""``brimful env``: the variables that Ray has to be started with, for a shell or a manifest."""

import argparse
import os
import shlex

from serve_app.environment import variables

ABOUT = (
    'Print the variables that every Ray process has to see: `eval "$(brimful env)"` before'
    " `ray start` on each node, and before `serve deploy`. A variable that is set already"
    " keeps its value."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``brimful env``."""
    parser.description = ABOUT
    parser.add_argument(
        "--yaml",
        action="store_true",
        help="print the `env` of a container instead; run it in the image, because the path of"
        " brimful-haproxy is this machine's",
    )


def run(args: argparse.Namespace) -> int:
    for name, default in variables().items():
        value = os.environ.get(name, default)
        if args.yaml:
            quoted = value.replace("'", "''")
            print(f"- {{name: {name}, value: '{quoted}'}}")
        else:
            print(f"export {name}={shlex.quote(value)}")
    return 0
