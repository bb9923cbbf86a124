"""``brimful fleet``: a fleet that follows a day of demand, by policies, in virtual time."""

import argparse
import json
import logging
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from controller.config import Sla
from controller.validation import parse
from replicas.profiles.profile_file import load_profile
from serve_app.tables import console_for, new_table
from simulator.fleet.days import CONVERSATION, MOST_REPLICAS, PEAK_REPLICAS, Day, find_days
from simulator.fleet.outcome import SHARE
from simulator.replay.command import progress
from simulator.replay.values import number, seed

if TYPE_CHECKING:
    from simulator.fleet.outcome import Outcome
    from simulator.fleet.trajectory import Result, Trajectory

PROFILE, ITL_MS, TTFT_MS = "paper-fig3", 100.0, 2000.0
POLICIES = ("brimful", "ray:target_ongoing_requests=20")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--day",
        nargs="+",
        default=["day-1"],
        metavar="DAY",
        help="day-1 to day-14 (of a real service), step, flash, all, or"
        " FILE.json (the format of configs/traffic/days.json) (default: day-1)",
    )
    parser.add_argument(
        "--policy",
        nargs="+",
        default=list(POLICIES),
        metavar="SPEC",
        help="NAME[:key=value,...]: brimful (keys of the scaling block), ray, dynamo-throughput,"
        " dynamo-load, dynamo-both; keys of"
        f" Ray Serve's autoscaling_config for all (default: {' '.join(POLICIES)})",
    )
    parser.add_argument(
        "--workload",
        default=CONVERSATION,
        metavar="SPEC",
        help="lengths for days of a file, as `brimful replay` takes them (default: %(default)s)",
    )
    parser.add_argument(
        "--peak",
        type=number(0.1, MOST_REPLICAS),
        default=PEAK_REPLICAS,
        metavar="REPLICAS",
        help="how many replicas' capacity the highest step of a file's day asks for (default: 20)",
    )
    parser.add_argument(
        "--profile", default=PROFILE, metavar="SPEC", help="step times (default: %(default)s)"
    )
    parser.add_argument("--itl", type=number(0.1, 1e5), default=ITL_MS, metavar="MS")
    parser.add_argument("--ttft", type=number(1, 1e6), default=TTFT_MS, metavar="MS")
    parser.add_argument(
        "--startup", type=number(0, 3600), default=100.0, metavar="S", help="of a replica"
    )
    parser.add_argument("--min-replicas", type=int, default=1, metavar="N")
    parser.add_argument("--max-replicas", type=int, default=40, metavar="N")
    parser.add_argument(
        "--tick", type=number(1, 60), default=10.0, metavar="S", help="of decisions"
    )
    parser.add_argument(
        "--overflow",
        metavar="SPEC",
        help="base=N or quantile=SHARE (of the day's time that N replicas carry), then"
        " [,price=0.35,losses_per_h=0.5,notice_s=120]: N replicas stand all day; those"
        " above them are of a cheaper group and are taken away at random times after a notice",
    )
    parser.add_argument("--seed", type=seed, default=0, help="of all randomness")
    parser.add_argument("--json", action="store_true", help="a JSON object a line instead")


def run(args: argparse.Namespace) -> int:
    """Simulate, print.

    Raises:
        ConfigError: naming what is wrong with the arguments or the files.
    """
    days = find_days(args.day, args.workload, args.peak)
    quiet()
    from simulator.fleet.policies import check_bounds, parse_policy
    from simulator.fleet.replica_pool import parse_overflow
    from simulator.fleet.simulate import Scenario
    from simulator.fleet.trajectory import Trajectory, result

    bounds = {"min_replicas": args.min_replicas, "max_replicas": args.max_replicas}
    check_bounds(bounds, "bounds")
    overflow = None if args.overflow is None else parse_overflow(args.overflow)
    sla = parse(Sla, {"itl_ms": args.itl, "ttft_ms": args.ttft}, "sla")
    scenario = Scenario(load_profile(args.profile), sla, args.startup, args.tick, seed=args.seed)
    for spec in args.policy:  # check all before the first runs
        parse_policy(spec, scenario, bounds)
    for day in days:
        trajectory = Trajectory(day, scenario, bounds, overflow)
        outcomes = [(spec, _outcome(trajectory, spec)) for spec in args.policy]
        results = [result(day, spec, outcome) for spec, outcome in outcomes]
        if args.json:
            for one, (_, outcome) in zip(results, outcomes, strict=True):
                print(json.dumps(one.to_json() | _group(trajectory, outcome)), flush=True)
        else:
            _table(day, trajectory, results)
            for spec, outcome in outcomes if overflow else ():
                group = _group(trajectory, outcome)
                print(spec, *(f"{key} {value:.4g}" for key, value in group.items()), sep=", ")
    return 0


def quiet() -> None:
    """Silence Ray Serve's log of every loaded policy and every decision."""
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module="ray.*")
    from ray.serve._private.constants import SERVE_LOGGER_NAME

    logging.getLogger(SERVE_LOGGER_NAME).setLevel(logging.ERROR)


def _outcome(trajectory: "Trajectory", spec: str) -> "Outcome":
    text = f"{trajectory.day.name} {spec.partition(':')[0]}"
    with progress(text, int(trajectory.day.seconds), "simulating", " s") as advance:
        return trajectory.outcome(spec, lambda passed: advance(int(passed)))


def _group(trajectory: "Trajectory", outcome: "Outcome") -> dict[str, float]:
    """Figures of the second group, if there is one."""
    if trajectory.overflow is None:
        return {}
    return {
        "lasting": trajectory.overflow.base or 0,
        "overflow_hours": outcome.overflow_s / 3600,
        "cost_hours": outcome.cost_hours(trajectory.overflow.price),
        "late_share": 1 - outcome.attainment,
        "lost": outcome.lost,
        "unserved": int(np.isnan(outcome.end_s).sum()),
    }


def _table(day: Day, trajectory: "Trajectory", results: "list[Result]") -> None:
    table = new_table(("policy",), ["in SLA", "replica-\nhours", "reversals\n/h"])
    table.title = (
        f"{day.name}: {len(trajectory.requests.arrival_s):,} requests, one replica carries"
        f" {trajectory.capacity_per_s:.2f}/s; hours count from {SHARE:.0%} inside the SLA"
    )
    for one in results:
        cells: list[Any] = [
            f"{one.attainment:.2%}",
            f"{one.replica_hours:.1f}" if one.keeps else f"({one.replica_hours:.1f})",
            f"{one.reversals_per_h:.2f}",
        ]
        table.add_row(one.spec, *cells)
    console_for(table, wide=False).print(table)
