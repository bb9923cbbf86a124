"""docs/results/elastic.md: the figures of ``make bench-elastic`` and the tables under them."""

import math
from collections.abc import Mapping, Sequence

from benchmarks.fleet.contest import WORTH, Found, best_rival
from benchmarks.fleet.one_for_all import OneForAll
from benchmarks.report.document import PAGES, markdown_table
from benchmarks.report.rows import Row, Section, exactly, shown
from simulator.fleet.course import Result
from simulator.fleet.outcome import SHARE
from simulator.fleet.policies import ORACLE, OURS, RIVALS
from simulator.fleet.simulate import Ground

# Ours on every day alike: as shipped, with the delays that our policy brings.
OURS_SPEC = OURS
TUNED_TOO = ", and is shown tuned for the day as well where that was searched"
OVER_ORACLE, OVER_RIVAL = 1.10, 0.85
ONE_SETTING = "_over_one_setting"  # ends the id of a figure of several days

FIDELITY = (
    "One fluid replica beside vLLM's own scheduler with the Governor and `adaptive`, in virtual"
    " time, on the same 1,000 requests; the real one / the fluid. Beyond what a replica carries the"
    " real one's mean time between tokens is past the SLA for half of the requests, and the fluid's"
    " just at it: while a fleet is overloaded the fluid is too kind, to all policies alike:"
)


def elastic_page(
    by_day: Mapping[str, Found],
    ground: Ground,
    fidelity: str = "",
    cut: Mapping[str, Mapping[str, int]] | None = None,
    shared: Mapping[str, OneForAll | None] | None = None,
) -> Section:
    """The figures with their targets, and the tables they were made from.

    Args:
        fidelity: the fluid beside the real scheduler (``benchmarks.fleet.against``); Markdown.
        cut: by day the policies whose search was cut short, with the settings that were tried.
        shared: by a group of days the best rival with one setting for all of them; None where
            that is not known.
    """
    if fidelity:
        fidelity = f"{FIDELITY}\n\n{fidelity}"
    cut = cut or {}
    rows = rows_of(by_day, cut, shared or {})
    tuned_too = TUNED_TOO if any(f"{OURS} tuned" in found for found in by_day.values()) else ""
    text = (
        f"A fleet in virtual time (`brimful fleet`, decision 23): fluid replicas with the steps of"
        f" `{ground.profile.name}`, SLA {ground.sla.itl_ms:g} ms between tokens on average and"
        f" {ground.sla.ttft_ms:g} ms to the first token, a start-up of {ground.startup_s:g} s, 1 to"
        " 40 replicas, a decision every 10 s through Ray Serve's own installed autoscaling. Days"
        " are scaled so that their highest step asks for the capacity of 20 replicas. Replica-hours"
        " count from the decision to start until the replica is empty, and only where"
        f" {SHARE:.0%} of all requests were inside the SLA. Each rival's constants and delays were"
        " searched for each day with the day known, beginning with what a search before had found"
        " where there was one, Ray Serve's delays, factors and look-back"
        " around it as well, and for one round only where after it"
        f" a rival took {WORTH:g} times the hours of the best; `brimful` is as shipped on all days,"
        f" but for a look-back of two decisions{tuned_too}. The oracle knows the future; its plan"
        " was found by search, so it is a mark and no bound; where a rival tuned for the day takes"
        " fewer hours, that one is the mark. One draw of each day"
        f" (seed {ground.seed})."
    )
    tables = [day_table(day, found, cut.get(day, {})) for day, found in by_day.items()]
    tables += [_shared_table(group, one, by_day) for group, one in (shared or {}).items()]
    plot = PAGES / "elastic.png"
    return Section(
        "Elastic", "replicas that follow demand", text, tuple(rows),
        (*tables, *filter(None, [fidelity])),
        plot if plot.exists() else None, max_tokens=None,
    )  # fmt: skip


def rows_of(
    by_day: Mapping[str, Found],
    cut: Mapping[str, Mapping[str, int]],
    shared: Mapping[str, OneForAll | None],
) -> list[Row]:
    """The figures with their targets; see ``elastic_page``."""
    rows = [
        row
        for day, found in by_day.items()
        for row in _rows(day, found, searched(cut.get(day, {})))
    ]
    ours = {day: found[OURS] for day, found in by_day.items()}
    return rows + [_shared_row(group, one, ours) for group, one in shared.items() if one]


def searched(cut: Mapping[str, int]) -> bool:
    """Whether no rival's search was cut short; ours may have been."""
    return cut.keys().isdisjoint(RIVALS)


def _rows(day: str, found: Found, sure: bool) -> Sequence[Row]:
    ours, oracle, rival = found[OURS], found[ORACLE], best_rival(found)
    at = f"elastic_{day.replace('-', '_')}"
    rows = [
        Row(f"{at}_inside", f"{day}: inside the SLA", "", exactly(ours.attainment), at_least=SHARE)
    ]
    # What does not keep the SLA has no hours that count.
    if ours.keeps and oracle.keeps:
        # Its plan is what a search found: where a policy takes fewer hours, that one is the mark.
        beaten = rival is not None and rival.replica_hours < oracle.replica_hours
        mark = rival if rival is not None and beaten else oracle
        over = ours.replica_hours / mark.replica_hours
        what = f"{day}: replica-hours over the oracle's"
        if beaten:
            what += f" (over those of {mark.policy}, tuned for the day, which takes fewer)"
        rows.append(_against(f"{at}_over_oracle", what, "", over, OVER_ORACLE, sure or not beaten))
    if ours.keeps and rival is not None:
        over = ours.replica_hours / rival.replica_hours
        what = f"{day}: over the best rival's ({rival.policy})"
        rows.append(_against(f"{at}_over_rival", what, "", over, OVER_RIVAL, sure))
    others = [
        r.reversals_per_h
        for name, r in found.items()
        if name.endswith(" tuned") and r.policy != OURS and r.keeps
    ]
    least = min(others, default=None)
    what = f"{day}: reversals per hour"
    rows.append(_against(f"{at}_reversals", what, "/h", ours.reversals_per_h, least, sure))
    if ours.back_s is not None:
        back = exactly(min(ours.back_s, 1e6))
        rows.append(Row(f"{at}_back", f"{day}: back inside the SLA after the rise", "s", back))
    return rows


def _against(
    id_: str, what: str, unit: str, value: float, at_most: float | None, sure: bool
) -> Row:
    """A figure beside the best rival's: no aim is met while a better rival may be found."""
    if at_most is not None and not sure and value <= at_most:
        return Row(id_, f"{what}; not all searched, <= {at_most:.4g} wanted", unit, exactly(value))
    return Row(id_, what, unit, exactly(value), at_most=at_most)


def _shared_row(group: str, one: OneForAll, ours: Mapping[str, Result]) -> Row:
    what = (
        f"{group}, {len(one.by_day)} of them: replica-hours over those of the best rival with one"
        f" setting for all ({one.spec.partition(':')[0]}), geometric mean"
    )
    over = exactly(one.hours_against(ours))
    return Row(f"elastic_{group.replace(' ', '_')}{ONE_SETTING}", what, "", over)


def _shared_table(group: str, one: OneForAll | None, by_day: Mapping[str, Found]) -> str:
    """The rival with one setting, beside itself tuned for each day, and ours."""
    if one is None:
        return f"A rival with one setting for {group}: none is known; not all was searched."
    name = one.spec.partition(":")[0]
    lines = []
    for day, made in one.by_day.items():
        ours, tuned = by_day[day][OURS], by_day[day][f"{name} tuned"]
        hours = (f"{each.replica_hours:.1f}" for each in (ours, made, tuned))
        turns = (shown(each.reversals_per_h) for each in (ours, made))
        lines.append((day, *hours, f"{made.attainment:.2%}", *turns))
    head = (
        "day", "replica-hours: `brimful`", f"{name}, one setting", f"{name}, tuned for the day",
        "inside, one setting", "reversals/h: `brimful`", f"{name}, one setting",
    )  # fmt: skip
    return (
        f"The best rival with one setting for {group} on which both keep the SLA, of"
        f" {', '.join(one.among)}: `{one.spec}`\n\n{markdown_table(head, lines)}"
    )


def day_table(
    day: str, found: Found, cut: Mapping[str, int] | None = None, *, searched: bool = True
) -> str:
    """What each policy made of a day.

    Args:
        cut: see ``elastic_page``.
        searched: for settings; else each rival has what an earlier search had ended with.
    """
    with_event = any(r.back_s is not None for r in found.values())
    head = ["policy", "setting", "inside", "replica-hours", "reversals/h"]
    lines = []
    for name, one in found.items():
        hours = f"{one.replica_hours:.1f}"
        line = [
            name,
            f"`{one.spec.partition(':')[2]}`" if ":" in one.spec else "",
            f"{one.attainment:.2%}",
            hours if one.keeps else f"({hours})",
            shown(one.reversals_per_h),
        ]
        if with_event:
            line.append(_seconds(one.back_s))
        lines.append(tuple(line))
    if with_event:
        head.append("back inside, s")
    if not searched:
        without = ", ".join(n for n in RIVALS if f"{n} tuned" not in found)
        note = "\n\nEach rival at the setting that an earlier search had ended with"
        note += f"; without one, or not asked for: {without}." if without else "."
        return f"{day}:\n\n" + markdown_table(tuple(head), lines) + note
    missed = [name for name, one in found.items() if not one.keeps]
    best = best_rival(found)
    dear = [
        one.policy
        for name, one in found.items()
        if name.endswith(" tuned")
        and one.keeps
        and best
        and one.replica_hours > WORTH * best.replica_hours
    ]
    note = f"\n\nSearched for one round only, as too dear: {', '.join(dear)}." if dear else ""
    if missed:
        note += f"\n\nUnder {SHARE:.0%} at every setting that was tried: {', '.join(missed)}."
        note += " Their hours, in brackets, do not count."
    if cut:
        counts = ", ".join(f"{count} of {name}" for name, count in cut.items() if count)
        note += "\n\nNot all searched"
        note += f"; settings tried where a search was cut short: {counts}." if counts else "."
        tuned = {OURS: f"{OURS} tuned for the day"}
        absent = [tuned.get(name, name) for name, count in cut.items() if not count]
        note += f" Not tried: {', '.join(absent)}." if absent else ""
    return f"{day}:\n\n" + markdown_table(tuple(head), lines) + note


def _seconds(back_s: float | None) -> str:
    if back_s is None:
        return ""
    return "never" if math.isinf(back_s) else f"{back_s:.0f}"
