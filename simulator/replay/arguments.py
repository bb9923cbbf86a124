"""The arguments of ``brimful replay``, and checks of their combination."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from controller.config import Block, Sla
from controller.errors import ConfigError
from controller.policies.registry import POLICIES
from controller.roles import Transfer
from controller.validation import parse
from replicas.profiles.disturbances import Disturbances
from replicas.profiles.profile import MOST_KV_TOKENS, StepProfile
from replicas.profiles.profile_file import load_profile
from serve_app.source import parse_documents
from simulator.replay.values import (
    LEAST_RATE,
    MOST_DRAFT_MS,
    MOST_DRAFTS,
    MOST_PHASE_S,
    MOST_RATE,
    count,
    drafts_from,
    max_tokens,
    number,
    rate,
    seed,
    share,
)
from simulator.virtual.plan import EngineOptions, Plan, Speculation, parse_policy
from simulator.virtual.rivals import NAMED
from simulator.workloads.catalog import load_workload
from simulator.workloads.max_tokens import SPREAD
from simulator.workloads.traffic import Phase, Workload

Arguments = argparse.Namespace

MOST_ENGINES = 64  # in one process; a step of each takes a millisecond
# Options for one engine; searches run one engine after another.
ALONE = ("find_capacity", "speculate", "async_scheduling", "swap")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    traffic = parser.add_argument_group("traffic")
    traffic.add_argument(
        "--workload",
        default="azure-2023-conversation",
        metavar="SPEC",
        help="NAME, FILE.json[:NAME], FILE.jsonl, fixed:IN,OUT, exponential:IN,OUT,"
        " lognormal:IN,OUT,CV, reasoning:IN,OUT,CV, long-prompts:IN,OUT, or"
        " agents[:TURNS,TOOL,OUT,PAUSE_S]: conversations, which --rate and --requests count then"
        " (default: %(default)s)",
    )
    traffic.add_argument(
        "--rate",
        type=rate,
        metavar="PER_S",
        help="requests/s, inf (all at once) or own (the workload's own; default)",
    )
    traffic.add_argument(
        "--burstiness",
        type=number(0, 100),
        metavar="CV",
        help="coefficient of variation of the gaps (default: the workload's own, else 1, Poisson)",
    )
    traffic.add_argument(
        "--phases",
        nargs="+",
        metavar="PHASE",
        help="traffic that shifts, instead of --workload and --rate: WORKLOAD@RATE@SECONDS each",
    )
    traffic.add_argument(
        "--requests",
        type=count(),
        metavar="N",
        help="how many (default: all of a JSONL file, else 1000)",
    )
    traffic.add_argument(
        "--max-tokens",
        type=max_tokens,
        default=SPREAD,
        metavar="RULE",
        help="the max_tokens that clients send, if the workload has no max_tokens:"
        " spread (a power of two from 256 to 4096 above its output, at random), a number for all,"
        " exact (its output itself: every policy knows the answer) or context (as much as"
        " fits max_model_len) (default: %(default)s)",
    )
    traffic.add_argument("--seed", type=seed, default=0, help="of all randomness")
    accelerator = parser.add_argument_group("accelerator and engine")
    accelerator.add_argument(
        "--profile",
        default="paper-fig3",
        metavar="SPEC",
        help="step times: NAME or FILE.json[:NAME] (default: %(default)s)",
    )
    accelerator.add_argument(
        "--kv-tokens",
        type=count(MOST_KV_TOKENS),
        metavar="N",
        help="size of KV memory (default: the profile's)",
    )
    accelerator.add_argument(
        "--swap",
        action="store_true",
        help="KV of preempted requests comes back from host memory over the link (--link-gbit-s,"
        " --link-latency-ms, --kv-bytes-per-token) if that is sooner than computing it again",
    )
    accelerator.add_argument(
        "--disturbances",
        metavar="YAML",
        help="disturbances of steps, as in `emulate.disturbances`:"
        " '{pauses: [{share: 0.05, mean_s: 0.03}]}'",
    )
    accelerator.add_argument("--prefix-caching", action="store_true", help="vLLM's, on")
    accelerator.add_argument(
        "--async-scheduling",
        action="store_true",
        help="schedule a step before the output of the last one is back, as vLLM does by default",
    )
    accelerator.add_argument(
        "--speculate",
        type=count(MOST_DRAFTS),
        metavar="K",
        help="draft tokens a step (speculative decoding)",
    )
    accelerator.add_argument(
        "--acceptance",
        type=share,
        default=0.7,
        metavar="P",
        help="chance of a draft to be accepted after those before it (default: 0.7)",
    )
    accelerator.add_argument(
        "--draft-ms",
        type=number(0, MOST_DRAFT_MS),
        default=0.0,
        metavar="MS",
        help="time to draft one token for the whole batch (default: 0, as from the text itself)",
    )
    accelerator.add_argument(
        "--speculate-by-batch",
        nargs="+",
        type=drafts_from,
        default=[],
        metavar="FROM:K",
        help="K drafts, of --speculate at most, from so many requests in a step on: 1:5 17:2 65:0"
        " (vLLM's num_speculative_tokens_per_batch_size)",
    )
    accelerator.add_argument(
        "--kv-bytes-per-token",
        type=number(1, 1e9),
        default=327_680.0,
        metavar="BYTES",
        help="KV of a token (default: %(default)s, a 70B model with GQA)",
    )
    accelerator.add_argument(
        "--link-gbit-s",
        type=number(1e-3, 1e6),
        default=200.0,
        metavar="GBIT_S",
        help="in each direction (default: %(default)s)",
    )
    accelerator.add_argument(
        "--link-latency-ms",
        type=number(0, 60_000),
        default=5.0,
        metavar="MS",
        help="of a transfer, whatever its size (default: %(default)s)",
    )
    fleet = parser.add_argument_group("fleet")
    fleet.add_argument(
        "--engines",
        type=count(MOST_ENGINES),
        metavar="N",
        help="number of engines behind the router (default: one without a router)",
    )
    policies = parser.add_argument_group("policies")
    policies.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="SPEC",
        help=f"NAME[:key=value,...], once for each to compare: {', '.join(POLICIES)}; and rivals,"
        f" in a checkout: {', '.join(NAMED)} (default: static)",
    )
    sla = parser.add_argument_group("SLA")
    sla.add_argument("--sla-itl-ms", type=float, metavar="MS", help="time between tokens")
    sla.add_argument("--sla-ttft-ms", type=float, metavar="MS", help="time to first token")
    sla.add_argument(
        "--percentile",
        type=float,
        default=99.0,
        metavar="P",
        help="share of the times between tokens to be inside it, %% (default: 99)",
    )
    sla.add_argument(
        "--find-capacity", action="store_true", help="search the highest rate that holds it"
    )
    sla.add_argument(
        "--max-median-delay-s",
        type=number(0),
        default=2.0,
        metavar="S",
        help="median scheduling delay that a capacity may have, unless --sla-ttft-ms is given"
        " (default: 2)",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--wide", action="store_true", help="all columns, however wide")
    output.add_argument("--json", action="store_true", help="one object per policy, a line each")
    output.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw cap, running, KV and ITL over time"
    )


@dataclass(frozen=True, slots=True)
class Order:
    """The arguments, checked and looked up.

    Args:
        phases: empty if ``workload`` is used.
    """

    workload: Workload
    phases: tuple[Phase, ...]
    profile: StepProfile
    sla: Sla
    plans: tuple[Plan, ...]
    disturbances: Disturbances


def read_order(args: Arguments) -> Order:
    """The checked arguments; vLLM is not loaded yet.

    Raises:
        ConfigError: naming what is wrong, or the arguments that contradict each other.
    """
    _check_together(args)
    profile = load_profile(args.profile).with_kv_tokens(args.kv_tokens)
    said = {"itl_ms": args.sla_itl_ms, "ttft_ms": args.sla_ttft_ms}
    said |= {"percentile": args.percentile}
    sla = parse(Sla, said, "sla")
    engine = EngineOptions(
        max_num_seqs=profile.max_num_seqs,
        max_num_batched_tokens=profile.max_num_batched_tokens,
        enable_prefix_caching=args.prefix_caching,
        async_scheduling=args.async_scheduling,
    )
    plans = [parse_policy(spec, sla, engine) for spec in args.policy or ["static"]]
    if args.speculate:
        drafts = Speculation(
            tokens=args.speculate,
            acceptance=args.acceptance,
            draft_s=args.draft_ms / 1000,
            by_batch=_ranges(args.speculate_by_batch),
        )
        plans = [replace(plan, speculation=drafts) for plan in plans]
    workload = load_workload(args.workload)
    if args.find_capacity and workload.talks:
        raise ConfigError(
            ["find-capacity: is not allowed with agents: a turn comes after an answer"]
        )
    phases = tuple(_phase(spec) for spec in args.phases or ())
    return Order(workload, phases, profile, sla, tuple(plans), _disturbances(args))


class _Disturbed(Block):
    disturbances: Disturbances = Disturbances()


def _disturbances(args: Arguments) -> Disturbances:
    if args.disturbances is None:
        return Disturbances()
    (given, *_) = parse_documents(args.disturbances)
    return parse(_Disturbed, {"disturbances": given}, "").disturbances


def _ranges(begins: Sequence[tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Ranges for vLLM, which extends the last one."""
    ends = [begin - 1 for begin, _ in begins[1:]] + [begins[-1][0]] if begins else []
    return tuple((begin, end, k) for (begin, k), end in zip(begins, ends, strict=True))


def _check_together(args: Arguments) -> None:
    found = []
    begins = [begin for begin, _ in args.speculate_by_batch]
    if begins and (begins[0] != 1 or sorted(set(begins)) != begins):
        given = " ".join(f"{begin}:{k}" for begin, k in args.speculate_by_batch)
        found.append(f"speculate-by-batch: {given} is not allowed: FROM from 1 on, ascending")
    if (begins or args.draft_ms) and not args.speculate:
        found.append("speculate-by-batch, draft-ms: need --speculate, the most drafts of a step")
    if args.phases and (args.rate is not None or args.requests is not None):
        found.append("phases: they say rate and number of requests; leave --rate, --requests out")
    if args.find_capacity and (args.phases or args.rate is not None):
        found.append("find-capacity: the rate is what it searches; leave --rate and --phases out")
    if args.find_capacity and args.sla_itl_ms is None and args.sla_ttft_ms is None:
        found.append("find-capacity: needs an SLA: --sla-itl-ms, --sla-ttft-ms or both")
    if args.engines is not None:
        found += [
            f"{name.replace('_', '-')}: is not allowed with --engines: one engine alone"
            for name in ALONE
            if getattr(args, name)
        ]
    if found:
        raise ConfigError(found)


def _phase(spec: str) -> Phase:
    try:
        workload, rate, seconds = spec.rsplit("@", 2)
        phase = Phase(load_workload(workload), float(rate), float(seconds))
    except ConfigError:
        raise
    except ValueError:
        raise ConfigError([f"phases: {spec!r} is not allowed: WORKLOAD@RATE@SECONDS"]) from None
    if not (LEAST_RATE <= phase.rate_per_s <= MOST_RATE and 0 < phase.seconds <= MOST_PHASE_S):
        raise ConfigError(
            [
                f"phases: {spec!r} is not allowed: a rate from {LEAST_RATE:g} to {MOST_RATE:,.0f},"
                f" seconds above 0 up to {MOST_PHASE_S:,.0f}"
            ]
        )
    return phase


def transfer_of(args: argparse.Namespace) -> Transfer:
    """The transfer of the link's arguments."""
    gbit_s, latency_ms = args.link_gbit_s, args.link_latency_ms
    return Transfer(args.kv_bytes_per_token, gbit_s * 1e9 / 8, latency_ms / 1000)
