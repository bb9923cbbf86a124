"""The arguments of ``brimful replay`` that disturb its steps."""

import argparse
from argparse import ArgumentTypeError
from collections.abc import Callable

from replicas.profiles.disturbances import (
    LEAST_PHASE_S,
    MOST_FACTOR,
    MOST_GRAPH_TOKENS,
    MOST_S,
    VLLM_GRAPH_SIZES,
    Disturbances,
    EncoderWork,
    Pauses,
    SlowPhases,
)
from simulator.replay.values import count, number, share

milliseconds = number(0, MOST_S * 1000)
factor = number(1, MOST_FACTOR)
phase_s = number(LEAST_PHASE_S, MOST_S)


def add_disturbances(group: argparse._ArgumentGroup) -> None:
    """What may disturb an accelerator's steps."""
    group.add_argument(
        "--noise",
        type=number(0, 10),
        default=0.0,
        metavar="CV",
        help="coefficient of variation of step times (default: 0)",
    )
    group.add_argument(
        "--pauses",
        type=pauses,
        action="append",
        default=[],
        metavar="SHARE:MEAN_MS",
        help="a share of the steps takes longer by an exponential pause; may be given again",
    )
    group.add_argument(
        "--slow",
        type=slow,
        action="append",
        default=[],
        metavar="SHARE:FACTOR:MEAN_S",
        help="for a share of the time, in phases of this mean length, steps take FACTOR times as"
        " long; may be given again",
    )
    group.add_argument(
        "--encoder",
        type=encoder,
        metavar="SHARE:MS",
        help="a share of the requests has an image: their first step takes so much longer",
    )
    group.add_argument(
        "--mixed-ms",
        type=milliseconds,
        default=0.0,
        metavar="MS",
        help="a step with any prompt token takes so much longer than one of decodes alone",
    )
    group.add_argument(
        "--graph-sizes",
        type=graph_sizes,
        default=(),
        metavar="SIZES",
        help="pad steps of decodes alone up to the next CUDA graph: vllm (its default sizes), or"
        " sizes as 1,2,4,8",
    )
    group.add_argument(
        "--first-step-s",
        type=number(0, MOST_S),
        default=0.0,
        metavar="S",
        help="each engine's first step takes at least so long, as where it compiles kernels",
    )


def disturbances_of(args: argparse.Namespace) -> Disturbances:
    """What these arguments ask for together."""
    return Disturbances(
        args.noise,
        tuple(args.pauses),
        tuple(args.slow),
        args.encoder,
        args.mixed_ms / 1000,
        args.graph_sizes,
        first_step_s=args.first_step_s,
    )


def pauses(text: str) -> Pauses:
    """SHARE:MEAN_MS."""
    of, mean_ms = _parts(text, "SHARE:MEAN_MS", share, milliseconds)
    return Pauses(of, mean_ms / 1000)


def slow(text: str) -> SlowPhases:
    """SHARE:FACTOR:MEAN_S."""
    return SlowPhases(*_parts(text, "SHARE:FACTOR:MEAN_S", share, factor, phase_s))


def encoder(text: str) -> EncoderWork:
    """SHARE:MS."""
    of, more_ms = _parts(text, "SHARE:MS", share, milliseconds)
    return EncoderWork(of, more_ms / 1000)


def graph_sizes(text: str) -> tuple[int, ...]:
    """``vllm``, or sizes with commas between them."""
    if text == "vllm":
        return VLLM_GRAPH_SIZES
    size = count(MOST_GRAPH_TOKENS)
    try:
        return tuple(size(part) for part in text.split(","))
    except ValueError:
        allowed = "vllm or whole numbers with commas between them, as 1,2,4,8"
        raise ArgumentTypeError(f"{text} is not allowed: {allowed}") from None


def _parts(text: str, form: str, *kinds: Callable[[str], float]) -> list[float]:
    parts = text.split(":")
    if len(parts) != len(kinds):
        raise ArgumentTypeError(f"{text} is not allowed: {form}")
    values = []
    for name, part, kind in zip(form.split(":"), parts, kinds, strict=True):
        try:
            values.append(kind(part))
        except ArgumentTypeError as error:
            raise ArgumentTypeError(f"{text}: {name} {error}") from None
        except ValueError:
            raise ArgumentTypeError(f"{text}: {name} {part} is not allowed: a number") from None
    return values
