"""docs/results/disturbed.md: the tables, the bound and the plot."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.disturbed import bound
from benchmarks.disturbed.best_static import Entry
from benchmarks.disturbed.compared import Compared, Side, geometric, overall
from benchmarks.disturbed.replays import LEAST_ITLS, LEAST_PHASES, LEAST_REQUESTS
from benchmarks.disturbed.rows import NOTHING
from benchmarks.disturbed.search import RUNGS
from benchmarks.report.document import PAGES, markdown_table, write_page
from benchmarks.report.rows import shown
from simulator.workloads.max_tokens import SPREAD, stated

NAME = "disturbed"
ALLOWED = 0.01  # late tokens, of Sla.percentile
HEAD = (
    "steps",
    "policy",
    "J",
    "J over static",
    "late %",
    "mean TTFT s",
    "TTFT bound s",
    "tokens/s",
    "p99.9 ms",
    "stalls",
    "longest ms",
)


def write(
    rows: Sequence[Compared],
    entries: Sequence[Entry],
    seeds: Sequence[int],
    folder: Path = PAGES,
) -> None:
    """The page and its picture."""
    plot(rows, folder / f"{NAME}.png")
    write_page(NAME, text(rows, entries, seeds), folder)


def text(rows: Sequence[Compared], entries: Sequence[Entry], seeds: Sequence[int]) -> str:
    """The page."""
    all_of_them = overall(rows)
    loads = list(dict.fromkeys(one.row.load for one in rows))
    parts = [
        "# Disturbed steps: `adaptive` beside the best static setting of each row",
        _how(rows, entries, seeds),
        f"J of `adaptive` over the static engine's: geometric mean of {len(rows)} rows"
        f" {all_of_them['j_over_static']:g}, worst {all_of_them['worst_j_over_static']:g}"
        f" (`{all_of_them['worst']}`).",
        ratios_table(rows),
        f"![J of adaptive over the best static setting, by disturbance]({NAME}.png)",
        "## The least TTFT that chunking can have",
        str(bound.__doc__).strip(),
        _beaten(rows),
        bounds_table(rows),
    ]
    for load in loads:
        of = [one for one in rows if one.row.load == load]
        rate_per_s = next(e for one, e in zip(rows, entries, strict=True) if one in of).rate_per_s
        parts += [
            f"## {load.name}: `{load.workload}` on `{load.profile}`, {rate_per_s:g}/s,"
            f" D {load.itl_ms:g} ms",
            markdown_table(HEAD, [line for one in of for line in _lines(one)]),
        ]
    return "\n\n".join([*parts, "Command: `make disturbed`"])


def _how(rows: Sequence[Compared], entries: Sequence[Entry], seeds: Sequence[int]) -> str:
    whats = {one.row.disturbed.name: one.row.disturbed.what for one in rows}
    named = "; ".join(f"`{name}`: {what}" for name, what in whats.items())
    commits = ", ".join(dict.fromkeys(entry.commit for entry in entries))
    searched = ", ".join(str(seed) for seed in RUNGS[-1].seeds)
    return (
        "J = max(late share / allowed share, 1) x mean TTFT in seconds, over all offered requests,"
        " nobody refused, from the second minute on. Late: gaps between two tokens above D, allowed"
        f" {ALLOWED:.0%}; stall: a gap above 20 D. Poisson arrivals, at least {LEAST_REQUESTS}"
        f" requests, {LEAST_ITLS} D and {LEAST_PHASES} slow phases; seeds"
        f" {', '.join(map(str, seeds))}, each with the same requests and disturbances for both"
        " policies. Late share, mean TTFT and tokens/s are of whole replays, means of the seeds;"
        " J and its ratios are geometric means; stalls are sums, the longest gap is the longest of"
        f" all. {stated(SPREAD)}\n\n"
        "Static: vLLM's `max_num_seqs` and `max_num_batched_tokens` (in parentheses), the best by J"
        f" of up to {max(entry.candidates for entry in entries)} for each row by itself (caps"
        " around the decodes of a step of D x budgets around what fits it, vLLM's default among"
        f" them, by successive halving on seeds {searched}, and then those half way to the"
        f" neighbours of the best; `make disturbed-search`, commit {commits}). `adaptive` runs in"
        " vLLM's default engine.\n\n"
        f"Steps: {named}."
    )


def _beaten(rows: Sequence[Compared]) -> str:
    below = [name for one in rows for name in one.below_bound(ALLOWED)]
    if below:
        return f"**Below the bound with no more late tokens than allowed: {', '.join(below)}.**"
    return "Nothing below kept late tokens at the allowed share and was below the bound."


def ratios_table(rows: Sequence[Compared]) -> str:
    """J of ``adaptive`` over the static engine's: a line for each disturbance, loads beside."""
    loads = list(dict.fromkeys(one.row.load.name for one in rows))
    by = {(one.row.disturbed.name, one.row.load.name): one.j_over_static for one in rows}
    lines = []
    for name in dict.fromkeys(one.row.disturbed.name for one in rows):
        found = [by.get((name, load)) for load in loads]
        mean = geometric([ratio for ratio in found if ratio is not None])
        cells = ["" if ratio is None else shown(ratio) for ratio in found]
        lines.append((f"`{name}`", *cells, shown(mean)))
    return markdown_table(("steps", *loads, "geometric mean"), lines)


def bounds_table(rows: Sequence[Compared]) -> str:
    """What chunking costs each load where nothing disturbs it; the first seed's terms."""
    head = (
        "load",
        "B",
        "T ms",
        "s0 ms",
        "p",
        "D / (D - s0)",
        "rho",
        "TTFT in order, none late s",
        "bound s",
        "static s",
        "adaptive s",
    )
    lines = []
    for one in rows:
        if one.row.disturbed != NOTHING:
            continue
        b, itl_s = one.bounds[0], one.row.load.itl_ms / 1000
        terms = (b.decodes, b.step_s * 1000, b.floor_s * 1000, b.room_tokens)
        slower = itl_s / (itl_s - b.floor_s)
        times = one.ttft_bound_s, one.static.ttft_s, one.adaptive.ttft_s
        cells = (*terms, slower, b.load, b.in_order_s, *times)
        lines.append((one.row.load.name, *(f"{cell:.3g}" for cell in cells)))
    return markdown_table(head, lines)


def _lines(one: Compared) -> list[tuple[str, ...]]:
    static = f"static ({one.setting.cap}, {one.setting.chunk})"
    name, bound_s = f"`{one.row.disturbed.name}`", shown(one.ttft_bound_s)
    return [
        (name, static, shown(one.static.j), "", *_cells(one.static, bound_s)),
        (
            name,
            "`adaptive`",
            shown(one.adaptive.j),
            shown(one.j_over_static),
            *_cells(one.adaptive, bound_s),
        ),
    ]


def _cells(side: Side, bound_s: str) -> tuple[str, ...]:
    return (
        f"{side.mean(lambda one: one.late_share) * 100:.2f}",
        shown(side.ttft_s),
        bound_s,
        shown(side.mean(lambda one: one.tokens_per_s)),
        shown(side.mean(lambda one: one.p999_ms)),
        str(side.stalls),
        f"{side.longest_ms:.0f}",
    )


def plot(rows: Sequence[Compared], path: Path) -> None:
    """The ratio of each row over its disturbance, loads side by side, on a logarithmic scale."""
    import matplotlib.figure  # not before it is asked for: it takes half a second

    figure = matplotlib.figure.Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    path.parent.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(one.row.disturbed.name for one in rows))
    loads = list(dict.fromkeys(one.row.load.name for one in rows))
    for place, load in enumerate(loads):
        of = [one for one in rows if one.row.load.name == load]
        aside = (place - (len(loads) - 1) / 2) * 0.08
        places = [names.index(one.row.disturbed.name) + aside for one in of]
        axes.plot(places, [one.j_over_static for one in of], "o", markersize=4, label=load)
    axes.axhline(1.0, color="0.6", linewidth=0.8, zorder=0)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks(range(len(names)), names, rotation=35, ha="right")
    axes.set_ylabel("J of adaptive over the best static setting")
    axes.legend(fontsize=7, ncols=2)
    figure.savefig(path, dpi=110)
