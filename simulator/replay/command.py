"""``brimful replay``: a workload through the real vLLM scheduler in virtual time, per policy."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from tqdm import tqdm

from simulator.replay.arguments import Arguments, Order, add_arguments, read_order, transfer_of
from simulator.replay.measure import Summary, summarise
from simulator.replay.table import print_table
from simulator.virtual.trace import Trace
from simulator.workloads.requests import Request, every
from simulator.workloads.traffic import Rate, draw_phases, draw_requests

if TYPE_CHECKING:
    from simulator.replay.capacity import Capacity, SearchTraffic
    from simulator.replay.engine import Progress, Scenario
    from simulator.replay.verdict import Target
    from simulator.virtual.plan import Plan

__all__ = ["add_arguments", "run"]


def run(args: Arguments) -> int:
    """Replay, print, plot.

    Raises:
        ConfigError: naming what is wrong with the arguments or the files.
    """
    order = read_order(args)
    requests = () if args.find_capacity else _requests(args, order)
    load_vllm()
    from simulator.replay.engine import Scenario

    scenario = Scenario(
        order.profile,
        order.disturbances,
        args.seed,
        swap=transfer_of(args) if args.swap else None,
    )
    results = []
    searched = (
        _search(args, order, scenario)
        if args.find_capacity
        else _replay(args, order, requests, scenario)
    )
    for summary, trace in searched:
        results.append((summary, trace))
        if args.json:
            print(json.dumps(summary.to_json()), flush=True)
    summaries = [summary for summary, _ in results]
    if not args.json:
        print_table(summaries, order.sla, wide=args.wide)
    if args.plot:
        from simulator.replay.plots import plot

        plot([(s.policy, trace) for s, trace in results], order.sla.itl_ms, args.plot)
        _say(f"plot: {args.plot}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def load_vllm() -> None:
    """Import vLLM's scheduler for a CPU; prints a line, as it takes long."""
    _say("loading vLLM's scheduler, about 15 s ...")
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    import simulator.replay.engine  # noqa: F401


def _requests(args: Arguments, order: Order) -> tuple[Request, ...]:
    if order.phases:
        return draw_phases(order.phases, args.burstiness, args.seed, args.max_tokens)
    rate: Rate = args.rate or "own"
    return draw_requests(
        order.workload, args.requests, rate, args.burstiness, args.seed, args.max_tokens
    )


@contextmanager
def progress(
    what: str, total: int | None, doing: str = "replaying", unit: str = " requests"
) -> Iterator["Progress"]:
    """A progress bar on stderr; a line if stderr is no terminal."""
    if not sys.stderr.isatty():
        _say(f"{doing} {what} ...")
    with tqdm(total=total, desc=what, unit=unit, leave=False, disable=None) as bar:
        yield bar.update


def _replay(
    args: Arguments, order: Order, requests: tuple[Request, ...], scenario: "Scenario"
) -> Iterator[tuple[Summary, Trace]]:
    from simulator.replay.engine import replay

    for plan in order.plans:
        with progress(plan.spec, sum(1 for _ in every(requests))) as advance:
            if args.engines is None:
                trace = replay(requests, plan, scenario, progress=advance)
            else:
                trace = _fleet(requests, plan, scenario, order, args)
        refused = sum(o.refused for o in trace.outcomes)
        if refused:
            what = "KV memory" if plan.engine.enable_chunked_prefill else "KV memory or one step"
            _say(f"{plan.spec}: {refused} requests are longer than {what} and were refused")
        yield summarise(plan.spec, trace, order.sla), trace


def _fleet(
    requests: tuple[Request, ...],
    plan: "Plan",
    scenario: "Scenario",
    order: Order,
    args: Arguments,
) -> Trace:
    from simulator.replay.fleet import Fleet
    from simulator.replay.steering import Fixed

    engines, transfer = args.engines, transfer_of(args)
    steering = Fixed(engines, 0, transfer, order.sla, args.seed)
    return Fleet(requests, plan, scenario, engines, transfer, steering).run(drain=True)


def _search(args: Arguments, order: Order, scenario: "Scenario") -> Iterator[tuple[Summary, Trace]]:
    from simulator.replay.capacity import search_traffic
    from simulator.replay.verdict import Target

    target = Target(order.sla, args.max_median_delay_s)
    traffic = search_traffic(
        order.workload,
        scenario,
        target,
        least=args.requests,
        gap_cv=args.burstiness,
        seed=args.seed,
        max_tokens=args.max_tokens,
    )
    _say(
        f"fluid limit {traffic.fluid_limit_per_s:.2f}/s; runs of {traffic.run_s:.0f} s"
        f" and at least {traffic.least} requests"
    )
    for plan in order.plans:
        bursts = args.burstiness is None and order.workload.bursts
        yield _search_one(plan, order, scenario, traffic, target, bursts)


def _search_one(
    plan: "Plan",
    order: Order,
    scenario: "Scenario",
    traffic: "SearchTraffic",
    target: "Target",
    bursts: bool,
) -> tuple[Summary, Trace]:
    """The capacity, and a whole replay at it (at the lowest tried rate if none held)."""
    from simulator.replay.capacity import find_capacity
    from simulator.replay.engine import replay

    with progress(plan.spec, None) as advance:
        found = find_capacity(traffic, plan, scenario, target, advance)
        rate_per_s = found.per_s or (found.failure and found.failure.rate_per_s) or 1.0
        trace = replay(traffic.requests_at(rate_per_s), plan, scenario, progress=advance)
    _say(f"{plan.spec}: {_ending(found, bursts)}")
    if found.too_good:
        _say(
            f"{plan.spec}: capacity {found.per_s:.2f}/s is above the fluid limit"
            f" {found.fluid_limit_per_s:.2f}/s: the run was too short; give more --requests"
        )
    summary = summarise(plan.spec, trace, order.sla)
    return replace(summary, capacity_per_s=found.per_s), trace


def _ending(found: "Capacity", bursts: bool) -> str:
    """The rate that ended a search, and why."""
    failure = found.failure
    if failure is None:
        return f"{found.per_s:.3g}/s holds, the highest rate tried"
    text = f"does not hold {failure.rate_per_s:.3g}/s: {failure.what}"
    if not found.per_s:
        text = f"no rate tried holds; the lowest, {failure.rate_per_s:.3g}/s: {failure.what}"
    if bursts:
        text += "; the workload brings its own bursts: --burstiness 1 has Poisson arrivals instead"
    return text
