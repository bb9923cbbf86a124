"""``brimful explain``: what limits each replica's batch, and what would help, in sentences."""

import argparse
import json
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from controller.config import BatchingConfig
from controller.models.step_time import StepModel
from controller.records import Advised, BatchLimits, BoundSteps, ReplicaReport
from serve_app.advice import advice_on
from serve_app.options import add_address, add_json
from serve_app.snapshot import (
    Control,
    connect,
    control_of,
    read_snapshot,
    refused_lines,
    role_of,
    stalled,
    stalls_of,
    switched_off,
)

ABOUT = (
    "Say what limits the batch of each replica of a running cluster, by which measurements,"
    " and what would help."
)
WIDEST = 100  # longer lines read badly
BOUND = {
    "memory": "KV memory",
    "sla": "the SLA",
    "bound": "max_running or the engine's size",
    "pushed": "the cap",
}
ROLE = {
    "mixed": "Its role is mixed: it answers clients, and computes both prompts and decodes.",
    "prefill": "Its role is prefill: it computes prompts for the other replicas of its group.",
    "to prefill": "It will compute prompts for others once its last decode has ended, or once"
    " as many requests wait as run.",
    "leaving": "It is being removed: it finishes its requests and gets no new ones.",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The sentences on one replica: its state, and what would help."""

    group: str
    replica: str
    control: Control
    max_running: int
    set_by: str
    facts: tuple[str, ...]
    advice: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``brimful explain``."""
    parser.description = ABOUT
    add_address(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print it.

    Raises:
        BrimfulError: there is no cluster, or no controller that answers.
    """
    connect(args.address)
    snapshot = read_snapshot()
    if args.json:
        print(json.dumps(explain_json(snapshot)))
        return 0
    explained = list(explanations(snapshot))
    width = min(shutil.get_terminal_size().columns, WIDEST)
    if off := switched_off(snapshot):
        print(textwrap.fill(off, width))
    for line in lines(explained, refused_lines(snapshot), width):
        print(line)
    for told in snapshot["scaling"]:
        print(f"\n{textwrap.fill(told.sentence(), width)}")
    return 0


def explain_json(snapshot: dict[str, Any]) -> dict[str, Any]:
    """An ``Explanation`` per replica, ``refused`` and ``scaling`` as in ``status_json``."""
    return {
        "replicas": [asdict(one) for one in explanations(snapshot)],
        "refused": snapshot["refused"],
        "scaling": [asdict(told) for told in snapshot["scaling"]],
    }


def explanations(snapshot: dict[str, Any]) -> Iterator[Explanation]:
    """One for each replica of ``BatchController.snapshot``, group by group."""
    for group, known in sorted(snapshot["groups"].items()):
        for replica_id, replica in sorted(known["replicas"].items()):
            report, limits, batching = replica["report"], replica["limits"], replica["batching"]
            yield Explanation(
                group=group,
                replica=replica_id,
                control=control_of(report, limits),
                max_running=limits.max_running,
                set_by=limits.reason,
                facts=tuple(facts(report, limits, batching)),
                advice=tuple(advice_on(report, limits, batching)),
            )


def lines(explained: list[Explanation], refused: list[str], width: int) -> Iterator[str]:
    """The explanations as text, a paragraph per replica, no line longer than ``width``.

    Args:
        refused: a sentence for each replica whose report was refused.
    """
    if not explained and not refused:
        yield "No replica has reported yet."
    for index, one in enumerate(explained):
        if index:
            yield ""
        yield from textwrap.wrap(f"{one.replica}, group {one.group}", width)
        for text in one.facts:
            yield from _item("  ", text, width)
        for text in one.advice:
            yield from _item("  -> ", text, width)
    for index, line in enumerate(refused):
        if explained and not index:
            yield ""
        yield from textwrap.wrap(line, width, break_on_hyphens=False)


def _item(mark: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
        break_on_hyphens=False,
    )


def facts(report: ReplicaReport, limits: BatchLimits, batching: BatchingConfig) -> Iterator[str]:
    """What the replica does and why, in sentences."""
    control = control_of(report, limits)
    if control in ("off", "advice"):
        why = "Control is switched off" if control == "off" else "It only advises"
        yield f"{why}: limits are computed and shown, but not applied; vLLM runs at its own."
        yield from _advised(report.advised)
    if control == "fallback":
        yield (
            "No limits from the controller reached it in time, so it decides from its own"
            " measurements."
        )
    if (role := role_of(report, limits)) is not None:
        yield ROLE[role]
        if report.decoding and role in ("prefill", "to prefill"):
            how = "without an ITL as prompts wait" if role == "prefill" else "inside the ITL"
            yield f"It still decodes {_requests(report.decoding)}, {how}."
        if report.for_others:
            yield f"It got {report.for_others:,} prompts of other replicas since it started."
    most, why = _requests(limits.max_running), _why(report, limits, batching)
    yield f"{_verb(control)} at most {most} at once: {why}."
    yield (
        f"Now {report.running} are running and {report.waiting} waiting; {report.kv_frac:.0%} of"
        f" its KV memory of {report.engine.kv_tokens:,} tokens is in use."
    )
    yield f"Steps took {report.busy_frac:.0%} of the last 10 s; in the rest no step ran."
    yield from _steps(report.bound_steps)
    allowed = 1 - batching.sla.percentile / 100
    if report.late_anyway is not None and report.late_anyway > allowed:
        yield (
            f"{report.late_anyway:.1%} of the tokens are late with any chunk (pauses of the"
            " host, decodes that take too long alone, preemptions); the SLA allows"
            f" {allowed:.2%}. A smaller chunk does not help."
        )
    if (stalls := stalls_of(report, batching)) and report.itl.longest_s is not None:
        yield stalled(stalls, report.itl.longest_s)
    if report.lengths.n:
        mean, cached = report.lengths, 1 - report.lengths.computed_frac
        yield (
            f"The last {mean.n} requests had {mean.mean_input:.0f} prompt tokens"
            f"{f' ({cached:.0%} of them cached)' if cached else ''} and"
            f" {mean.mean_output:.0f} generated tokens on average; one that runs holds"
            f" {mean.mean_held:.0f} tokens of KV memory."
        )
    if report.model is not None:
        yield _step_time(report.model)


def _advised(seen: Advised) -> Iterator[str]:
    if not seen.prompt_tokens:
        return
    moved = _share(seen.tokens_moved, seen.prompt_tokens)
    yield (
        f"If applied, the limits would have moved {seen.starts_held:,} of {seen.starts:,}"
        f" starts and {moved} of {seen.prompt_tokens:,} prompt tokens to later steps. `brimful"
        " shadow` replays what `brimful capture` wrote, with control and without."
    )


def _verb(control: Control) -> str:
    return "It would run" if control in ("off", "advice") else "It runs"


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"


def _why(report: ReplicaReport, limits: BatchLimits, batching: BatchingConfig) -> str:
    itl_ms, percentile = batching.sla.itl_ms, batching.sla.percentile
    if limits.sla_out_of_reach and itl_ms is not None:
        return f"no batch keeps the SLA of {itl_ms:g} ms at the {percentile:g}th percentile"
    if limits.reason == "memory":
        return "with one more, KV memory would overflow too often"
    if limits.reason == "sla" and itl_ms is not None:
        return (
            f"with one more, steps would take longer than the SLA of {itl_ms:g} ms at the"
            f" {percentile:g}th percentile"
        )
    if limits.reason == "bound":
        return _which_bound(report, limits, batching)
    return {
        "sla": "with one more, steps would take longer than the SLA",
        "load": "there are fewer requests than that, so none has to wait",
        "static": "that is the static setting",
        "start": "that is the first guess; too little was measured yet",
    }[limits.reason]


def _which_bound(report: ReplicaReport, limits: BatchLimits, batching: BatchingConfig) -> str:
    bounds, cap = batching.max_running, limits.max_running
    if cap == bounds.max:
        return "batching.max_running.max allows no more"
    if cap >= report.engine.max_num_seqs:
        return f"the engine was started with max_num_seqs {report.engine.max_num_seqs}"
    if cap == bounds.min:
        return "batching.max_running.min requires that many, though fewer would be better"
    return "batching.max_running or the engine's size allows no more"


def _steps(bound: BoundSteps) -> Iterator[str]:
    counts = asdict(bound)
    total = sum(counts.values())
    if not total:
        return
    waited = [
        f"{what} kept requests waiting in {_share(counts[name], total)}"
        for name, what in BOUND.items()
        if counts[name]
    ]
    if counts["load"]:
        waited.append(f"none waited in {_share(counts['load'], total)}")
    yield f"Of its {total:,} steps since it started: {', '.join(waited)}."


def _share(part: int, total: int) -> str:
    frac = part / total
    return "under 1%" if frac < 0.01 else f"{frac:.0%}"


def _step_time(model: StepModel) -> str:
    return (
        f"A step takes {model.c0 * 1e3:.2f} ms, and {model.c1 * 1e3:.4f} ms more for each decode,"
        f" {model.c2 * 1e6:.3f} us for each KV token and {model.c3 * 1e3:.4f} ms for each prompt"
        " token."
    )
