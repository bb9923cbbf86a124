"""The arguments of ``brimful plan``."""

import argparse
from pathlib import Path

from serve_app.planning.kv import BLOCK_SIZE, KV_BYTES
from serve_app.planning.memory import UTILIZATION
from simulator.fleet.days import CONVERSATION
from simulator.replay.values import LEAST_RATE, MOST_DRAFTS, MOST_RATE, count, number, share

ABOUT = (
    "Weights, KV memory, batch, capacity inside the SLA, replicas and cost of a model on a card,"
    " from its config.json alone. Every figure but a recorded step time is arithmetic: `--explain`"
    " shows it."
)
MOST_LEN = 100_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ABOUT
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a config.json, its folder, or a name (configs/models, or of these the Hub's)",
    )
    _hardware(parser)
    _demand(parser)
    parser.add_argument("--explain", action="store_true", help="the arithmetic, line by line")
    parser.add_argument("--json", action="store_true", help="one JSON object, for scripts")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="a Serve config to deploy it with"
    )


def _hardware(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", metavar="CARD", help="a card of configs/gpus.json (default: H100)")
    parser.add_argument(
        "--tensor-parallel",
        type=count(64),
        metavar="N",
        help="cards of a replica (default: the fewest that leave a fifth of their memory to KV)",
    )
    parser.add_argument(
        "--gpu-memory-utilization",
        type=number(0.01, 1),
        default=UTILIZATION,
        metavar="SHARE",
        help="vLLM's option (default: its own, %(default)s)",
    )
    parser.add_argument(
        "--reserve",
        type=number(0, 1000),
        metavar="GIB",
        help="memory for activations, CUDA graphs and context (default: estimated)",
    )
    parser.add_argument(
        "--kv-cache-dtype",
        default="auto",
        metavar="DTYPE",
        help=f"{', '.join(KV_BYTES)} (default: the checkpoint's)",
    )
    parser.add_argument(
        "--block-size",
        type=count(4096),
        default=BLOCK_SIZE,
        metavar="TOKENS",
        help="of KV memory (default: %(default)s)",
    )
    parser.add_argument(
        "--max-model-len",
        type=count(MOST_LEN),
        metavar="TOKENS",
        help="longest sequence (default: the model's, or what KV memory holds)",
    )
    parser.add_argument("--max-num-seqs", type=count(100_000), metavar="N")
    parser.add_argument("--max-num-batched-tokens", type=count(1_000_000), metavar="N")
    parser.add_argument(
        "--profile",
        metavar="SPEC",
        help="measured or recorded step times, as `brimful replay` takes them (default: a"
        " roofline); without --gpu the KV memory is the profile's, too",
    )


def _demand(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workload",
        default=CONVERSATION,
        metavar="SPEC",
        help="lengths, as `brimful replay` takes them: fixed:IN,OUT, a JSONL file, a name"
        " (default: %(default)s)",
    )
    parser.add_argument("--itl", type=number(0.1, 1e5), default=50.0, metavar="MS")
    parser.add_argument("--ttft", type=number(1, 1e6), default=2000.0, metavar="MS")
    parser.add_argument(
        "--rate",
        type=number(LEAST_RATE, MOST_RATE),
        metavar="PER_S",
        help="requests/s to serve; with --day, at its highest",
    )
    parser.add_argument("--day", metavar="DAY", help="as `brimful fleet` takes it, with --rate")
    parser.add_argument(
        "--price", type=number(0, 1e4), metavar="PER_H", help="of one card for an hour"
    )
    parser.add_argument(
        "--speculate", type=count(MOST_DRAFTS), default=3, metavar="K", help="drafts a step (3)"
    )
    parser.add_argument(
        "--acceptance",
        type=share,
        default=0.7,
        help="chance of a draft to be accepted after those before it (default: %(default)s)",
    )
