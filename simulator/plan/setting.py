"""The input of a plan: the arguments, resolved and checked."""

import argparse
from dataclasses import dataclass, replace

from controller.config import Sla
from controller.errors import ConfigError
from controller.validation import parse
from replicas.profiles.profile import StepProfile
from replicas.profiles.profile_file import load_profile
from serve_app.planning.cards import Card, load_card
from serve_app.planning.kv import KvLayout, kv_layout
from serve_app.planning.memory import (
    Budget,
    budget,
    check_tensor_parallel,
    does_not_fit,
    least_tensor_parallel,
    longest_sequence,
)
from serve_app.planning.model_config import load_model
from serve_app.planning.roofline import RooflineCost, roofline_profile
from serve_app.planning.shape import ModelShape
from simulator.fleet.days import find_days
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import LengthStats, length_stats
from simulator.workloads.traffic import draw_traffic

GPU = "H100"
DRAWN = 4000  # requests whose lengths give the means
CONCURRENT_BATCHES = 2  # of vLLM's asynchronous scheduling, for tokens of windows


@dataclass(frozen=True, slots=True)
class Setting:
    """A model on a replica's cards, its steps, and the demand.

    Args:
        gpu: the card's name.
        held: mean KV tokens of a running request.
        slots: requests of that size that KV memory holds.
        measured: steps are those of ``--profile``, not of a roofline.
        own_kv: whether KV memory is the profile's.
        day: shares of ``rate_per_s`` and their length in seconds.
    """

    model: str
    shape: ModelShape
    gpu: str
    card: Card
    tp: int
    layout: KvLayout
    budget: Budget
    max_model_len: int
    capacity_tokens: int
    slots: float
    profile: StepProfile
    roofline: RooflineCost
    measured: bool
    own_kv: bool
    workload: str
    lengths: LengthStats
    sla: Sla
    rate_per_s: float | None
    day: tuple[float, tuple[float, ...]] | None
    price_per_h: float | None
    drafts: int
    acceptance: float

    @property
    def itl_s(self) -> float:
        assert self.sla.itl_ms is not None
        return self.sla.itl_ms / 1000

    @property
    def engine(self) -> tuple[int, int]:
        return self.profile.max_num_seqs, self.profile.max_num_batched_tokens


def resolve(args: argparse.Namespace) -> Setting:
    """Everything that a plan is computed from.

    Raises:
        ConfigError: naming what is wrong with the arguments, the config.json or the files.
    """
    shape = load_model(args.model)
    measured = None if args.profile is None else load_profile(args.profile)
    gpu = args.gpu or GPU
    card = load_card(gpu)
    engine = _engine(args, card, measured)
    utilization = args.gpu_memory_utilization
    tp = args.tensor_parallel or least_tensor_parallel(shape, card, engine, utilization)
    check_tensor_parallel(shape, tp)
    layout = kv_layout(shape, tp, args.kv_cache_dtype, args.block_size)
    made = budget(shape, card, tp, engine, utilization, args.reserve)
    in_flight = CONCURRENT_BATCHES * engine[1]
    longest = longest_sequence(layout, max(made.kv, 0.0), shape.max_len, in_flight)
    if made.kv <= 0 or not longest:
        raise ConfigError([does_not_fit(shape, card, tp, utilization)])
    wanted = args.max_model_len
    if wanted is not None and wanted > longest:
        what = "the model's" if longest == shape.max_len else "what KV memory holds"
        raise ConfigError([f"--max-model-len: {wanted} is not allowed: at most {longest}, {what}"])
    max_len = wanted or longest
    lengths = _lengths(args.workload)
    if lengths.mean_input + lengths.mean_output > max_len:
        mean = lengths.mean_input + lengths.mean_output
        problem = f"{mean:.0f} tokens a request on average, and a sequence has at most {max_len}"
        raise ConfigError([f"--workload: {args.workload!r} is not allowed: {problem}"])
    held = lengths.mean_held
    own_kv = measured is not None and args.gpu is None
    slots = measured.kv_tokens / held if measured and own_kv else layout.sequences(made.kv, held)
    roofline = RooflineCost(shape, card, tp, held, layout.kv_bytes)
    kv_tokens = max(int(slots * held), 1)
    profile = roofline_profile(f"{shape.name} on {tp} x {gpu}", roofline, kv_tokens, engine)
    if measured is not None:
        seqs, tokens = engine
        profile = replace(
            measured.with_kv_tokens(kv_tokens), max_num_seqs=seqs, max_num_batched_tokens=tokens
        )
    return Setting(
        args.model, shape, gpu, card, tp, layout, made, max_len,
        layout.capacity_tokens(made.kv, max_len, in_flight),
        slots, profile, roofline, measured is not None, own_kv,
        args.workload, lengths,
        parse(Sla, {"itl_ms": args.itl, "ttft_ms": args.ttft}, "sla"),
        args.rate, _day(args), args.price, args.speculate, args.acceptance,
    )  # fmt: skip


def _engine(args: argparse.Namespace, card: Card, measured: StepProfile | None) -> tuple[int, int]:
    seqs, tokens = card.engine_defaults()
    if measured is not None and args.gpu is None:
        seqs, tokens = measured.max_num_seqs, measured.max_num_batched_tokens
    return args.max_num_seqs or seqs, args.max_num_batched_tokens or tokens


def _lengths(spec: str) -> LengthStats:
    workload = load_workload(spec)
    n = len(workload.recorded) or DRAWN
    return length_stats(draw_traffic(workload, n, None, seed=0).requests)


def _day(args: argparse.Namespace) -> tuple[float, tuple[float, ...]] | None:
    if args.day is None:
        return None
    if args.rate is None:
        raise ConfigError([f"--day: {args.day!r} is not allowed without --rate, its highest"])
    days = find_days([args.day], args.workload, 1.0)
    if len(days) != 1:
        raise ConfigError([f"--day: {args.day!r} is not allowed: it is {len(days)} days; one"])
    rates = days[0].rates
    highest = max(rates.rate_per_s)
    return rates.step_s, tuple(rate / highest for rate in rates.rate_per_s)
