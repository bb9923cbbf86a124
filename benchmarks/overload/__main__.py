"""1x, 2x, 5x and 10x the capacity of an emulated fleet, then 1x again (``make bench-overload``).

Three classes, open-loop arrivals, OpenAI's own client with its retries over HTTP. Opponents, on
the same requests: Ray Serve LLM as shipped, and vLLM's own limit.
"""

import argparse
import math
from collections.abc import Mapping

from benchmarks.overload.figures import Figures
from benchmarks.overload.measure import GRACE_S, Measured, measure
from benchmarks.overload.shapes import (
    CLASSES,
    ITL_MS,
    LOADS,
    ONE,
    OUTPUT_TOKENS,
    PROFILE,
    PROMPT_TOKENS,
    REPLICAS,
    SHARES,
    SLOTS,
    TIME_SCALE,
)
from benchmarks.overload.stack import VARIANTS
from benchmarks.report.command import end
from benchmarks.report.document import markdown_table, write_page
from benchmarks.report.rows import Row, Section, exactly, shown


def section(
    per_s: float,
    found: Mapping[str, Measured],
    seconds: float,
) -> Section:
    """The figures with their targets, and the tables they were made from."""
    rows = _rows(found["brimful"].figures) if "brimful" in found else ()
    text = (
        f"{REPLICAS} emulated replicas of {SLOTS} slots, steps of `{PROFILE}` slept"
        f" {TIME_SCALE:g} times slower, prompts of {PROMPT_TOKENS[0]} to"
        f" {PROMPT_TOKENS[1]} tokens, answers of {OUTPUT_TOKENS[0]} to {OUTPUT_TOKENS[1]}. OpenAI's"
        " client, streaming, two retries, over HAProxy. Poisson arrivals of"
        f" {', '.join(f'{s:.0%} {n}' for n, s in SHARES.items())}; 1x is {per_s:.2f} requests/s,"
        f" {ONE:g} of the throughput at twice the load that all slots can serve; each load for"
        f" {seconds:g} s. Goodput: requests that ended in the phase, whole, inside their"
        " class's time to first token (from the attempt that was served) and"
        f" {ITL_MS * TIME_SCALE:g} ms between tokens on average. Attainment: of all"
        " requests of the class that were first sent in the phase. Late: of the requests that were"
        " admitted, those without a token by their deadline, answers of 503 among them. Requests"
        f" that run {GRACE_S:g} s after the last load are ended and counted (unfinished)."
    )
    return Section(
        "Overload", "goodput at loads beyond the capacity of the fleet", text, rows,
        tuple(_tables(found)), max_tokens=None,
    )  # fmt: skip


def _rows(ours: Figures) -> tuple[Row, ...]:
    one, ten = ours.goodput_per_s[0], ours.goodput_per_s[-2]
    over = {load: g / one for load, g in zip(LOADS[1:-1], ours.goodput_per_s[1:-1], strict=True)}
    inside = {name: shares[-2] for name, shares in ours.attainment.items()}
    top, *_, last = CLASSES
    after, late = (
        "goodput from 10 s after the load's end on",
        "admitted requests that missed their deadline",
    )
    error = "predicted versus real wait, p50 of the difference"
    known: list[tuple[str, str, str, float, float | None, float | None]] = [
        ("goodput_10x_over_1x", "goodput at 10x over that at 1x", "", ten / one, 0.9, None),
        ("overload_goodput_least", "... the least of 2x, 5x, 10x", "", min(over.values()), 0.9,
         None),
        ("overload_recovered", f"{after}, over 1x", "", ours.recovered_frac, 0.95, None),
        ("overload_refused_p99", "time to a refusal", "ms", ours.refused_s * 1000, None, 50),
        ("overload_attempts", "attempts per request", "", ours.attempts, None, 3),
        ("overload_top_class", f"`{top}` inside its SLO at 10x", "", inside[top], 0.99, None),
        ("overload_lowest", f"`{last}` inside its SLO at 10x", "", inside[last], None, None),
        ("overload_5xx", "answers of 500 and above, without 503", "", ours.errors, None, 0),
        ("overload_503", "answers of 503: timeouts", "", ours.unavailable, None, None),
        ("overload_broken", "errors inside a 200", "", ours.broken, None, 0),
        ("overload_wait_error", error, "s", ours.wait_error_s, None, None),
        ("overload_late", f"share of {late}", "", ours.accepted_late, None, 0.02),
    ]  # fmt: skip
    return tuple(
        Row(id_, what, unit, exactly(float(value)), at_least=low, at_most=high)
        for id_, what, unit, value, low, high in known
        if not math.isnan(value)
    )


def _tables(found: Mapping[str, Measured]) -> list[str]:
    loads = [f"{load:g}x" for load in LOADS]
    goodput = [(f"`{n}`", *map(shown, m.figures.goodput_per_s)) for n, m in found.items()]
    attained = [
        (f"`{variant}`, {name}", *map(shown, shares))
        for variant, m in found.items()
        for name, shares in m.figures.attainment.items()
    ]
    rest = [
        (f"`{n}`", shown(f.refused_s * 1000), shown(f.attempts), str(f.errors), str(f.unavailable),
         str(f.unfinished), str(f.broken), shown(f.accepted_late))
        for n, m in found.items() for f in [m.figures]
    ]  # fmt: skip
    head = ("", "refusal p99, ms", "attempts", "5xx", "503", "unfinished", "broken", "late")
    notes = [
        f"- `{name}`: {VARIANTS[name]}. The client waited for a core"
        f" {'?' if m.waited_frac is None else f'{m.waited_frac:.1%}'} of the time."
        for name, m in found.items()
    ]
    return [
        "Goodput, requests/s:\n\n" + markdown_table(("", *loads), goodput),
        "Attainment:\n\n" + markdown_table(("", *loads), attained),
        markdown_table(head, rest),
        "\n".join(notes),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="duration of each of the five loads"
    )
    parser.add_argument("--only", nargs="*", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--write", action="store_true", help="also write docs/results/overload.md")
    args = parser.parse_args()
    per_s, found = measure(args.only, args.seconds)
    page = section(per_s, found, args.seconds)
    short = "" if args.seconds == parser.get_default("seconds") else f"--seconds {args.seconds:g} "
    text = page.markdown(f"make bench-overload ARGS='{short}--write'")
    print(text)
    if args.write:
        write_page("overload", text)
    end("overload", page.rows)


if __name__ == "__main__":
    main()
