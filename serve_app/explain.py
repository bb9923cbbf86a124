"""``brimful explain``: what limits each replica's batch, and what would help, in sentences.

``facts`` says what is, ``advice_on`` what would let the batch grow, with what the measurements say
that it would bring.
"""

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
MORE = 1.25  # a quarter more requests: worth a change, and still near the measurements


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
    paragraphs = [
        [
            ("", f"{one.replica}, group {one.group}"),
            *(("  ", text) for text in one.facts),
            *(("  -> ", text) for text in one.advice),
        ]
        for one in explained
    ]
    for index, paragraph in enumerate([*paragraphs, [("", line) for line in refused]]):
        if index and paragraph:
            yield ""
        for mark, text in paragraph:
            yield from textwrap.wrap(
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


def advice_on(
    report: ReplicaReport, limits: BatchLimits, batching: BatchingConfig
) -> Iterator[str]:
    """What an operator can do, in sentences; nothing if nothing holds the replica back."""
    control = control_of(report, limits)
    if control == "off":
        yield "To apply the limits again: `brimful enforce on`."
    if control == "advice":
        yield "To apply the limits: batching.enforce: true."
    if control == "fallback":
        yield (
            "It uses the controller's limits again as soon as it receives some. If it does"
            " not, its log says why, and `ray list actors` shows the actor brimful-controller."
        )
    if limits.sla_out_of_reach:
        yield from _out_of_reach(report.model, batching)
    elif limits.reason == "memory":
        yield from _memory(report, limits)
    elif limits.reason == "sla":
        yield from _sla(report, limits, batching)
    elif limits.reason == "bound":
        yield from _bound(report, limits, batching)
    elif limits.reason == "static" and batching.policy == "static":
        yield "`batching.policy: adaptive` sizes the batch from KV memory and the SLA instead."
    elif limits.reason == "start":
        yield "Nothing to do: limits follow once some requests have been served."


def _memory(report: ReplicaReport, limits: BatchLimits) -> Iterator[str]:
    held = report.lengths.mean_held
    tenth = ""
    if held:
        tenth = f" (10% more holds about {0.1 * report.engine.kv_tokens / held:.0f} more requests)"
    yield (
        f"More KV memory allows a larger batch{tenth}: a higher gpu_memory_utilization,"
        " kv_cache_dtype: fp8, more cards per replica."
    )
    yield _one_more(limits)


def _sla(report: ReplicaReport, limits: BatchLimits, batching: BatchingConfig) -> Iterator[str]:
    model, wanted = report.model, round(limits.max_running * MORE)
    text = "A looser batching.sla.itl_ms allows a larger batch"
    if model is not None and wanted > limits.max_running and report.lengths.n:
        needed_ms = 1e3 * _step_s(model, wanted, report.lengths.mean_held)
        if batching.sla.itl_ms is not None and needed_ms > batching.sla.itl_ms:
            text += f" ({needed_ms:.0f} ms for {wanted} requests, by the measured steps)"
    yield f"{text}; so do a faster card and tensor parallelism."
    yield _one_more(limits)


def _bound(report: ReplicaReport, limits: BatchLimits, batching: BatchingConfig) -> Iterator[str]:
    cap, bounds = limits.max_running, batching.max_running
    if cap == bounds.max and cap < report.engine.max_num_seqs:
        yield "Raise batching.max_running.max, or leave it out."
    elif cap >= report.engine.max_num_seqs:
        yield (
            "If requests wait: a higher engine_kwargs.max_num_seqs, which takes a restart and"
            " some memory for larger buffers."
        )
    elif cap == bounds.min:
        yield "Lower batching.max_running.min, or loosen the SLA, which allows fewer."


def _out_of_reach(model: StepModel | None, batching: BatchingConfig) -> Iterator[str]:
    itl_ms = batching.sla.itl_ms
    if model is not None and itl_ms is not None:
        yield (
            f"A step with a single decode takes {1e3 * model.predict_s(1, 0, 0, 0):.1f} ms,"
            f" {1e3 * _step_s(model, 1, 0):.1f} ms at the percentile: raise batching.sla.itl_ms"
            f" ({itl_ms:g}) above that, or take a faster card, tensor parallelism or a smaller"
            " model."
        )
    yield (
        "More replicas do not help, because none would keep this SLA. Autoscaling leaves the"
        " number of replicas as it is."
    )


def _one_more(limits: BatchLimits) -> str:
    share = 1 / (limits.replicas + 1)
    return (
        f"One more replica takes {share:.0%} of the requests, so the queue gets shorter; steps"
        " do not."
    )


def _step_s(model: StepModel, decodes: float, held_tokens: float) -> float:
    """A step of so many decodes at the SLA's percentile, seconds."""
    return model.predict_s(decodes, decodes * held_tokens, 0, 0) * (1 + model.tail_frac)
