"""Outcomes of requests while something fails (``make bench-faults``).

A steady load from OpenAI's own client, retries on, over HTTP on an emulated fleet.
"""

import argparse
import math
import sys
from collections.abc import Sequence

from benchmarks.faults.client import MEANING
from benchmarks.faults.deaths import ITL_S, SIGNALS, STREAMS, Death, death
from benchmarks.faults.faults import (
    AFTER_S,
    BEFORE_S,
    BURST_PER_S,
    DISCONNECT,
    KILLS,
    NODE,
    RATE_PER_S,
    UNTIL_RAY_NOTICES_S,
    WHAT,
    Found,
    disconnects,
    node_removed,
    run,
)
from benchmarks.faults.stack import (
    HANG_S,
    REPLICAS,
    SLOTS,
    application,
    fleet,
    real_application,
)
from benchmarks.report.command import end
from benchmarks.report.document import markdown_table, write_page
from benchmarks.report.rows import Row, Section, exactly


def measure(names: Sequence[str]) -> dict[str, Found]:
    """The outcomes of these faults, one after the other."""
    found: dict[str, Found] = {}
    here = [name for name in names if name != NODE]
    if here:
        with fleet() as there:
            for name in here:
                print(name, file=sys.stderr)
                found[name] = (
                    disconnects(there) if name == DISCONNECT else run(there, KILLS[name][1])
                )
    if NODE in names:
        print(NODE, file=sys.stderr)
        found[NODE] = node_removed()
    return found


def deaths(names: Sequence[str], streams: int, replicas: int, *, real: bool) -> dict[str, Death]:
    """Have engines die under streams, one after the other."""
    found: dict[str, Death] = {}
    app = real_application(replicas) if real else application(replicas=replicas)
    with fleet(app) as there:
        for name in names:
            print(name, file=sys.stderr)
            one = death(there, SIGNALS[name][1], streams, emulated=not real)
            print(one, file=sys.stderr)
            found[name] = found[name] + one if name in found else one
    return found


def deaths_section(found: dict[str, Death], replicas: int, *, real: bool) -> Section:
    """How streams went on, with the gaps at the death."""
    engines = "tiny Llamas on CPUs, greedy" if real else "emulated"
    text = (
        f"{replicas} replicas, {engines}; one engine gets a signal while all streams run"
        f" ({HANG_S:g} s without an answer count as a hang). A stream is *wrong* if it is whole and"
        " a token is missing, came twice or is another one than without a death. Gaps: of the"
        " streams that moved, as their clients see them."
    )
    rows = tuple(row for name, one in found.items() for row in _death_rows(name, one, real=real))
    errors = [f"- {SIGNALS[n][0]}: {error}" for n, one in found.items() for error in one.errors]
    return Section(
        "Deaths of engines", "how streams go on when their engine dies", text, rows,
        ("\n".join(["Errors at clients:", "", *(errors or ["- nothing"])]),), max_tokens=None,
    )  # fmt: skip


def _death_rows(name: str, found: Death, *, real: bool) -> tuple[Row, ...]:
    of, lost = f"{name}{'_real' if real else ''}", found.streams - found.ends.get("whole", 0)
    moved, gaps_s = found.outcomes.get("moved", 0), found.gaps_s
    title = f"{SIGNALS[name][0]}, {found.streams} streams, of which {moved} moved"
    least_s = HANG_S if SIGNALS[name][1] == SIGNALS["engine_hangs"][1] else 0.0
    rows = [
        Row(f"{of}_lost", f"{title}: not whole", "", exactly(lost), at_most=0),
        Row(f"{of}_wrong", "... wrong", "", exactly(found.wrong), at_most=0),
        Row(
            f"{of}_others",
            f"... others' gaps within {ITL_S:g} s, over before",
            "",
            exactly(round(found.others[1] / found.others[0], 3)),
            at_least=0.9,
        ),
    ]
    if gaps_s:
        p50, p99 = gaps_s[len(gaps_s) // 2], gaps_s[len(gaps_s) // 100]
        rows += [
            Row(f"{of}_gap_p50", "... gap p50", "s", exactly(round(p50, 2)), at_most=least_s + 2),
            Row(f"{of}_gap_p99", "... gap p99", "s", exactly(round(p99, 2))),
        ]
    return tuple(rows)


def section(found: dict[str, Found]) -> Section:
    """The figures with their targets, and the data behind them."""
    text = (
        f"{REPLICAS} emulated replicas of {SLOTS} slots, steps of `paper-fig3` slept, one class,"
        f" HeadroomRouter, HAProxy by `brimful-haproxy`. OpenAI's client with its two retries,"
        f" {RATE_PER_S:g} requests/s ({BURST_PER_S:g} in a burst), two thirds of them streams,"
        f" {BEFORE_S:g} s before each fault and {AFTER_S:g} s after it"
        f" ({UNTIL_RAY_NOTICES_S:g} s for HAProxy, which Ray replaces meanwhile). How a request"
        " can end: "
        + "; ".join(f"*{end}*: {meaning}" for end, meaning in MEANING.items())
        + ". Lost is *cut* and *silent*: accepted, and neither a status nor an error event."
        + "".join(f" Not run: {WHAT[name]}." for name in WHAT if name not in found)
    )
    return Section(
        "Faults", "what becomes of requests when something fails under them", text,
        tuple(row for name, one in found.items() for row in _rows(name, one)),
        (_table(found), _errors(found)), max_tokens=None,
    )  # fmt: skip


def _rows(name: str, found: Found) -> tuple[Row, ...]:
    failed = found.counts.ends["failed"]
    rows = [
        Row(f"fault_{name}_failed", f"{WHAT[name]}: failed before any byte", "",
            exactly(failed), at_most=None if name == NODE else 0),
        Row(f"fault_{name}_lost", "... lost", "", exactly(found.counts.lost), at_most=0),
    ]  # fmt: skip
    if found.left:
        held = sum(found.left.values())
        rows.append(Row(f"fault_{name}_left", "... held after it", "", exactly(held), at_most=0))
    return tuple(rows)


def _table(found: dict[str, Found]) -> str:
    head = ("fault", "sent", *MEANING, "repeated", "longest to a first token, s", "whole within, s")
    rows = [
        (
            WHAT[name],
            str(one.counts.sent),
            *(str(one.counts.ends[end]) for end in MEANING),
            str(one.counts.retried),
            f"{one.counts.worst_ttft_s:.1f}",
            "" if math.isnan(one.whole_after_s) else f"{one.whole_after_s:.0f}",
        )
        for name, one in found.items()
    ]
    return markdown_table(head, rows)


def _errors(found: dict[str, Found]) -> str:
    lines = [
        f"- {WHAT[name]}: {number} x {error}"
        for name, one in found.items()
        for error, number in one.counts.errors.items()
    ]
    return "\n".join(["Errors at the client:", "", *(lines or ["- nothing"])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=[*WHAT, *SIGNALS], default=list(WHAT))
    parser.add_argument("--real", action="store_true", help="kill real engines (tiny Llamas)")
    parser.add_argument("--streams", type=int, default=STREAMS, help="streams per killed process")
    parser.add_argument("--replicas", type=int, default=REPLICAS, help="replicas of the fleet")
    parser.add_argument("--write", action="store_true", help="also write docs/results/faults.md")
    settings = parser.parse_args()
    if dying := [name for name in settings.only if name in SIGNALS]:
        found = deaths(dying, settings.streams, settings.replicas, real=settings.real)
        page = deaths_section(found, settings.replicas, real=settings.real)
        name = "deaths-real" if settings.real else "deaths"
    else:
        page, name = section(measure(settings.only)), "faults"
    text = page.markdown("make bench-faults ARGS=--write")
    print(text)
    if settings.write:
        write_page(name, text)
    end(name, page.rows)


if __name__ == "__main__":
    main()
