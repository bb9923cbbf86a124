"""1x, 2x, 5x and 10x of what an emulated fleet carries, then 1x again (``make bench-overload``).

Three classes, open-loop arrivals, OpenAI's own client with its retries over HTTP. Beside it, on the
same requests: Ray Serve LLM as shipped, and vLLM's own limit.
"""

import argparse
import asyncio
import json
import math
import random
import sys
import time
from collections.abc import Sequence

from benchmarks.overload.client import Outcome, plan, send
from benchmarks.overload.figures import Figures, Promise, figures, phases_of
from benchmarks.overload.stack import (
    CLASSES,
    ITL_MS,
    MODEL,
    REPLICAS,
    SHARES,
    SLOTS,
    URL,
    VARIANTS,
    Fleet,
    answers,
    fleet,
)
from benchmarks.report.document import markdown_table, write_page
from benchmarks.report.rows import Row, Section, exactly, shown

LOADS = (1.0, 2.0, 5.0, 10.0, 1.0)
PROMPT_TOKENS, OUTPUT_TOKENS = (20, 120), (40, 120)
ONE = 0.9  # 1x: of what the fleet served while it was asked for more than it could
WARM_UP_S, SETTLE_S = 5.0, 20.0


def lengths(rng: random.Random) -> tuple[int, int]:
    """Prompt and output tokens of one request."""
    return rng.randint(*PROMPT_TOKENS), rng.randint(*OUTPUT_TOKENS)


def slots_per_s(time_scale: float) -> float:
    """Requests a second if every slot is always taken, by the paper's figure 3 line."""
    step_s = (0.0269 + 0.0002308 * SLOTS) * time_scale
    return REPLICAS * SLOTS / (sum(OUTPUT_TOKENS) / 2 * step_s)


def promise(time_scale: float) -> Promise:
    """What clients are promised, in the time that passes for them."""
    ttft_s = {name: one["ttft_ms"] / 1000 * time_scale for name, one in CLASSES.items()}
    return Promise(ttft_s, ITL_MS / 1000 * time_scale)


def capacity_per_s(seconds: float, time_scale: float) -> float:
    """What the fleet serves while twice its slots are asked for; by the second half of the run."""
    asked = plan([(2 * slots_per_s(time_scale), seconds)], SHARES, 0, lengths)
    found = asyncio.run(send(URL, MODEL, asked))
    return sum(seconds / 2 <= o.ended_s < seconds and o.whole for o in found) / (seconds / 2)


def run(
    deployed: Fleet, variant: str, per_s: float, settings: argparse.Namespace
) -> tuple[Figures, float]:
    """One variant under all loads; its figures, and what the largest growth of a process is, MB."""
    phases = phases_of(LOADS, settings.seconds)
    asked = plan(
        [(load * per_s, settings.seconds) for load in LOADS], SHARES, settings.seed, lengths
    )
    before = deployed.memory_mb()
    print(f"{variant}: {len(asked)} requests", file=sys.stderr)
    outcomes: Sequence[Outcome] = asyncio.run(send(URL, MODEL, asked))
    after = deployed.memory_mb()
    growth_mb = max((after[pid] - mb for pid, mb in before.items() if pid in after), default=0.0)
    return figures(outcomes, phases, promise(settings.time_scale)), growth_mb


def measure(settings: argparse.Namespace) -> tuple[float, dict[str, tuple[Figures, float]]]:
    """Capacity, and every variant's figures, one after the other on one cluster."""
    found: dict[str, tuple[Figures, float]] = {}
    per_s = 0.0
    with fleet() as deployed:
        for variant in settings.only:
            deployed.deploy(variant, settings.time_scale)
            while not answers():  # HAProxy hears of it a moment later
                time.sleep(1)
            warm = plan([(slots_per_s(settings.time_scale) / 2, WARM_UP_S)], SHARES, 1, lengths)
            asyncio.run(send(URL, MODEL, warm))
            if not per_s:
                per_s = ONE * capacity_per_s(max(settings.seconds / 2, 10.0), settings.time_scale)
                time.sleep(SETTLE_S)
            found[variant] = run(deployed, variant, per_s, settings)
    return per_s, found


def section(
    per_s: float, found: dict[str, tuple[Figures, float]], settings: argparse.Namespace
) -> Section:
    """The figures with their targets, and the tables they were made from."""
    rows = _rows(*found["brimful"]) if "brimful" in found else ()
    text = (
        f"{REPLICAS} emulated replicas of {SLOTS} slots, steps of `paper-fig3` slept"
        f" {settings.time_scale:g} times slower, prompts of {PROMPT_TOKENS[0]} to"
        f" {PROMPT_TOKENS[1]} tokens, answers of {OUTPUT_TOKENS[0]} to {OUTPUT_TOKENS[1]}. OpenAI's"
        " client, streaming, two retries, over HAProxy. Poisson arrivals of"
        f" {', '.join(f'{s:.0%} {n}' for n, s in SHARES.items())}; 1x is {per_s:.2f} requests/s,"
        f" {ONE:g} of what the fleet served when twice as many were asked for; each load for"
        f" {settings.seconds:g} s. Goodput: requests that ended in the phase, whole, inside their"
        " class's time to first token (from the attempt that was served) and"
        f" {ITL_MS * settings.time_scale:g} ms between tokens on average. Attainment: of all"
        " requests of the class that were first sent in the phase."
    )
    return Section(
        "Overload", "goodput when more is asked for than the fleet carries", text, rows,
        tuple(_tables(found)), max_tokens=None,
    )  # fmt: skip


def _rows(ours: Figures, growth_mb: float) -> tuple[Row, ...]:
    one, ten = ours.goodput_per_s[0], ours.goodput_per_s[-2]
    inside = {name: shares[-2] for name, shares in ours.attainment.items()}
    top, *_, last = CLASSES
    after, late = "goodput from 10 s after the load's end on", "let in that missed their deadline"
    known: list[tuple[str, str, str, float, float | None, float | None]] = [
        ("goodput_10x_over_1x", "goodput at 10x over that at 1x", "", ten / one, 0.9, None),
        ("overload_recovered", f"{after}, over 1x", "", ours.recovered_frac, 0.95, None),
        ("overload_refused_p99", "time to a refusal", "ms", ours.refused_s * 1000, None, 50),
        ("overload_attempts", "attempts per request", "", ours.attempts, None, 3),
        ("overload_top_class", f"`{top}` inside its promise at 10x", "", inside[top], 0.99, None),
        ("overload_lowest", f"`{last}` inside its promise at 10x", "", inside[last], None, None),
        ("overload_5xx", "answers of 500 and above, without 503", "", ours.errors, None, 0),
        ("overload_503", "answers of 503: timeouts", "", ours.unavailable, None, None),
        ("overload_broken", "errors inside a 200", "", ours.broken, None, 0),
        ("overload_wait_error", "|predicted - real| wait, p50", "s", ours.wait_error_s, None, None),
        ("overload_late", f"share of those {late}", "", ours.accepted_late, None, 0.02),
        ("overload_memory", "largest growth of a process", "MB", growth_mb, None, None),
    ]
    return tuple(
        Row(id_, what, unit, exactly(float(value)), at_least=low, at_most=high)
        for id_, what, unit, value, low, high in known
        if not math.isnan(value)
    )


def _tables(found: dict[str, tuple[Figures, float]]) -> list[str]:
    loads = [f"{load:g}x" for load in LOADS]
    goodput = [(f"`{n}`", *map(shown, f.goodput_per_s)) for n, (f, _) in found.items()]
    attained = [
        (f"`{variant}`, {name}", *map(shown, shares))
        for variant, (f, _) in found.items()
        for name, shares in f.attainment.items()
    ]
    rest = [
        (f"`{n}`", shown(f.refused_s * 1000), shown(f.attempts), str(f.errors), str(f.unavailable),
         str(f.broken), shown(f.accepted_late), shown(growth))
        for n, (f, growth) in found.items()
    ]  # fmt: skip
    head = ("", "refusal p99, ms", "attempts", "5xx", "503", "broken", "late", "growth, MB")
    return [
        "Goodput, requests/s:\n\n" + markdown_table(("", *loads), goodput),
        "Attainment:\n\n" + markdown_table(("", *loads), attained),
        markdown_table(head, rest),
        "\n".join(f"- `{name}`: {VARIANTS[name]}" for name in found),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-overload ARGS=", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each of the five loads")
    parser.add_argument("--time-scale", type=float, default=2.0, help="steps are so much slower")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--write", action="store_true", help="docs/results/overload.md as well")
    settings = parser.parse_args()
    page = section(*measure(settings), settings)
    text = page.markdown("make bench-overload ARGS=--write")
    print(text)
    if settings.write:
        write_page("overload", text)
    print(json.dumps({"bench": "overload", "rows": [row.to_json() for row in page.rows]}))


if __name__ == "__main__":
    main()
