"""The figures of ``make bench-cpu``, and its page."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from benchmarks.engine_lab.conditions import BY_MINUTE, CONDITIONS, SKIP_S
from benchmarks.engine_lab.load import BURST, LONG, STREAM, STREAMS_PER_BURST
from benchmarks.engine_lab.schedule import SIDES, Plan, Row, Side
from benchmarks.engine_lab.search import candidates
from benchmarks.engine_lab.tasks import MOST_TTFT_S, Ground, Limits
from benchmarks.report.bootstrap import Estimate
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row as Figure
from benchmarks.report.rows import Section, exactly, shown
from controller.config import STALL_ITLS

NAMES: dict[Side, str] = {"off": "vLLM's default", "tuned": "static, tuned", "on": "adaptive"}
HEAD = (
    "condition, streams/s, engine",
    "late %",
    "ITL p50, p99, p99.9 ms",
    "stalls",
    "longest ms",
    "TTFT mean, p50, p99 s",
    "tokens/s",
    "J",
)
TOKENS_OFF, P99_OFF = 0.10, 0.20  # how far a replay may be from the engine

Found = dict[str, Any]
Read = Callable[[Found], float]


def section(rows: Sequence[Row], ground: Ground, plan: Plan) -> Section:
    """What the conditions of a ground share."""
    return Section(
        "engine-lab",
        "one engine with a real model on one core",
        _text(ground, plan),
        tuple(figure for row in rows for figure in [*_control(row), *_replay(row)]),
        (_conditions_table(rows), _table(rows), _disturbed_table(rows)),
        max_tokens=None,
    )


def _late(found: Found) -> float:
    return 100 * found["late_frac"]


def _p99(found: Found) -> float:
    return found["itl_ms"][1]


def _ttft(found: Found) -> float:
    return found["ttft_s"][0]


def _tokens(found: Found) -> float:
    return found["tokens_per_s"]


def _j(found: Found) -> float:
    return found["j"]


def _longest(found: Found) -> float:
    return found["longest_ms"]


def _control(row: Row) -> list[Figure]:
    of = {side: [run["figures"] for run in row.runs[side]] for side in SIDES}
    at = f"{row.condition}, {row.share:g} of its rate"

    def ratio(id_: str, what: str, read: Read, over: Side) -> Figure:
        ratios = [read(a) / read(b) for a, b in zip(of["on"], of[over], strict=True)]
        return Figure(
            _id(row, id_), f"{what}, adaptive over {NAMES[over]}: {at}", "ratio", middle(ratios)
        )

    return [
        ratio("j_on_over_tuned", "J", _j, "tuned"),
        ratio("j_on_over_off", "J", _j, "off"),
        ratio("ttft_on_over_tuned", "mean TTFT", _ttft, "tuned"),
        ratio("tokens_on_over_tuned", "tokens/s", _tokens, "tuned"),
        ratio("p99_on_over_off", "p99 ITL", _p99, "off"),
        ratio("longest_on_over_off", "longest gap", _longest, "off"),
        *(
            Figure(
                _id(row, f"late_{side}"),
                f"late, {NAMES[side]}: {at}",
                "%",
                middle(map(_late, of[side])),
            )
            for side in SIDES
        ),
    ]


def _replay(row: Row) -> list[Figure]:
    figures = []
    for side, beside in row.beside.items():
        pairs = [(b, run["figures"]) for b, run in zip(beside, row.runs[side], strict=True)]
        at = f"replay over engine, {NAMES[side]}: {row.condition}, {row.share:g} of its rate"
        for id_, what, read, off in (
            ("tokens", "tokens/s", _tokens, TOKENS_OFF),
            ("p99", "p99 ITL", _p99, P99_OFF),
        ):
            ratios = middle([read(replayed) / read(real) for replayed, real in pairs])
            id_ = _id(row, f"replay_{id_}_ratio_{side}")
            # The replay draws its place in the recording every few seconds: no minute stays whole.
            held = not row.condition.endswith(BY_MINUTE)
            between = (1 - off, 1 + off) if held else ()
            figures.append(Figure(id_, f"{what}, {at}", "ratio", ratios, *between))
    return figures


def _id(row: Row, name: str) -> str:
    return f"{row.condition.replace('-', '_')}_{row.share * 100:.0f}_{name}"


def middle(values: "Sequence[float] | map[float]") -> Estimate:
    """The median of the rounds, with the lowest and the highest."""
    found = list(values)
    if len(found) == 1:
        return exactly(found[0])
    return Estimate(median(found), min(found), max(found), "min to max", len(found))


def _table(rows: Sequence[Row]) -> str:
    """Medians of the rounds; below each side, the replay of it."""
    lines = []
    for row in rows:
        at = f"{row.condition}, {row.rate_per_s:g}"
        for side in SIDES:
            name = f"{NAMES[side]} {limits_text(row.tuned)}" if side == "tuned" else NAMES[side]
            lines.append((f"{at}, {name}", *_cells([run["figures"] for run in row.runs[side]])))
            if row.beside:
                lines.append(("replay of it", *_cells(row.beside[side])))
    return markdown_table(HEAD, lines)


def _cells(found: Sequence[Found]) -> tuple[str, ...]:
    def middles(name: str) -> str:
        columns = zip(*(one[name] for one in found), strict=True)
        return ", ".join(shown(median(column)) for column in columns)

    return (
        f"{median(map(_late, found)):.2f}",
        middles("itl_ms"),
        shown(median(one["stalls"] for one in found)),
        shown(median(map(_longest, found))),
        middles("ttft_s"),
        shown(median(map(_tokens, found))),
        shown(median(map(_j, found))),
    )


def limits_text(limits: Limits) -> str:
    """``(cap, token budget)``."""
    return "(vLLM's default)" if limits == Limits() else f"({limits.cap}, {limits.token_budget})"


def _conditions_table(rows: Sequence[Row]) -> str:
    names = {row.condition for row in rows}
    lines = [(one.name, one.what, f"{one.seconds:g}") for one in CONDITIONS if one.name in names]
    return markdown_table(("condition", "what wants the engine's core", "s of arrivals"), lines)


def _disturbed_table(rows: Sequence[Row]) -> str:
    """What else happened on the core; the highest of all runs of a row."""
    names = ("hog_frac", "waited_frac", "stolen_frac")
    lines = []
    for row in rows:
        runs = [run for side in SIDES for run in row.runs[side]]
        shares = (f"{100 * max(run[name] for run in runs):.1f}" for name in names)
        lines.append((f"{row.condition}, {row.rate_per_s:g}", *shares))
    head = ("% of the time, highest of a row's runs", "hog", "waited, not for the hog", "stolen")
    return markdown_table(head, lines)


def _text(ground: Ground, plan: Plan) -> str:
    return (
        f"One engine in one process on one core, no HTTP, bfloat16, eager, model {ground.model},"
        f" SLA {ground.sla_ms:g} ms at the {ground.percentile:g}th percentile. Streams of"
        f" {STREAM[0]} tokens in and {STREAM[1]} out come as a Poisson process;"
        f" {BURST} prompts of {LONG[0]} tokens with {LONG[1]} out come at once every"
        f" {STREAMS_PER_BURST:g} streams. Requests that arrive in the first {SKIP_S:g} s do not"
        f" count. A row's rate is a share of the highest rate at which some static limits keep"
        f" late tokens at {100 - ground.percentile:g}% and mean TTFT at {MOST_TTFT_S:g} s, by a"
        f" replay on steps recorded here. The tuned limits are the best of vLLM's default and the"
        f" {plan.tried} that the replay ranks first among {len(candidates())}, by one run each on"
        f" the engine at the row's rate with requests of their own. J is"
        f" max(late share / allowed share, 1) x mean TTFT in s; a stall is a gap of more than"
        f" {STALL_ITLS} SLAs. {plan.rounds} rounds, each with requests of its own,"
        f" the three engines in turn; figures are medians of the rounds, ratios are paired by"
        f" round. The replay serves the same requests on the steps recorded in all runs of the row."
    )
