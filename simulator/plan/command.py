"""``brimful plan``: sizing of a model on a card before anything is started."""

import argparse
import json
import sys
from collections.abc import Iterator

from serve_app.planning.cards import GIB
from serve_app.tables import console_for, new_table
from simulator.plan.answer import Plan, plan_for
from simulator.plan.arguments import add_arguments
from simulator.plan.deploy import write
from simulator.plan.explain import explain
from simulator.plan.setting import resolve

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Compute, print, write.

    Raises:
        ConfigError: naming what is wrong with the arguments, the config.json or the files.
    """
    plan = plan_for(resolve(args))
    if args.json:
        print(json.dumps(plan.to_json()))
    else:
        _print(plan)
        if args.explain:
            print()
            for line in explain(plan):
                print(line)
    if args.write is not None:
        write(plan, args.write)
        print(f"written: {args.write}", file=sys.stderr)
    return 0


def _print(plan: Plan) -> None:
    own = plan.setting
    table = new_table(("",), ("value",))
    table.add_column("of it", overflow="fold")
    table.title = f"{own.shape.name}: a replica on {own.tp} x {own.gpu}"
    for name, value, note in _rows(plan):
        table.add_row(name, value, note)
    console_for(table, wide=False).print(table)


def _rows(plan: Plan) -> Iterator[tuple[str, str, str]]:
    own, budget = plan.setting, plan.setting.budget
    weights = own.shape.quantization.method or own.shape.dtype
    yield "weights", f"{budget.weights.total / GIB:.1f} GiB", f"a card, {weights}"
    note = "the profile's KV memory counts instead" if own.own_kv else "a card"
    yield "left for KV cache", f"{budget.kv / GIB:.1f} GiB", note
    yield "KV of a token", f"{own.layout.token_bytes / 1024:.1f} KiB", "a card, beyond windows"
    yield "KV capacity", f"{own.capacity_tokens:,} tokens", f"sequences of {own.max_model_len:,}"
    held = f"requests of {own.lengths.mean_held:,.0f} tokens"
    yield "batch by memory", f"{plan.by_memory:,}", held
    itl = f"{own.itl_s * 1e3:g} ms"
    yield "batch by SLA", f"{plan.batch_in_sla:,.0f}", f"with their prompts, steps of {itl}"
    steps = own.profile.name if own.measured else "roofline"
    one_s = own.profile.step_s(1, own.lengths.mean_held, 0, 0)
    yield "step of one decode", f"{one_s * 1e3:.1f} ms", steps
    note = own.workload if plan.fluid_per_s else f"no step of one request takes {itl} or less"
    yield "capacity in the SLA", f"{plan.capacity_per_s:.2f}/s", note
    yield "without an SLA", f"{plan.offline_per_s:.2f}/s", "full batches"
    if own.rate_per_s is not None:
        yield from _demanded(plan)
    if own.price_per_h is not None:
        cost = "out of reach" if plan.cost is None else f"{plan.cost:.2f}"
        yield "cost of a million", cost, f"output tokens, at {own.price_per_h:g} a card and hour"
    if plan.fluid_per_s:
        yield from _choices(plan)


def _choices(plan: Plan) -> Iterator[tuple[str, str, str]]:
    split, drafts = plan.divided, plan.drafted
    note = f"{_worth(plan.divide())}: {split.prefill_per_decode:.2f} prefill engines per decode"
    yield "disaggregated", f"x {split.gain:.2f}", f"{note} engine"
    note = (
        f"{_worth(plan.speculate())}: {drafts.drafts} drafts, {plan.setting.acceptance:g} accepted"
    )
    yield "speculation", f"x {drafts.gain:.2f}", note


def _worth(pays: bool) -> str:
    return "worth it" if pays else "not worth it"


def _demanded(plan: Plan) -> Iterator[tuple[str, str, str]]:
    demand, own = plan.demand, plan.setting
    if demand is None:
        yield "replicas", "none", f"no step keeps {own.itl_s * 1e3:g} ms"
        return
    yield "replicas", f"{demand.replicas:,}", f"for {demand.rate_per_s:g} requests/s"
    if demand.replica_hours is not None:
        note = (
            f"over {demand.day_h:g} h; {demand.replicas * (demand.day_h or 0):,.0f} at the peak's"
        )
        yield "replica-hours", f"{demand.replica_hours:,.1f}", note
        if own.price_per_h is not None:
            cost = demand.replica_hours * own.tp * own.price_per_h
            yield "cost of the day", f"{cost:,.2f}", f"cards of a replica: {own.tp}"
