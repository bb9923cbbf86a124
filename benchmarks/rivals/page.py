"""docs/results/rivals.md: a section for each ground, replaced by the run that measures it."""

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report.document import PAGES, write_page
from benchmarks.report.rows import Row, Section

NAME = "rivals"
PATH = PAGES / f"{NAME}.md"
HEAD = "# R: against named rivals"
LEFT_OUT = (
    "Which rival was taken as what, and from which source, stands in `benchmarks/baselines`, one"
    " file each, and in docs/decisions. Left out: SABER (arXiv 2506.19677), of which no"
    " code was found."
)


def with_section(page: str, name: str, text: str) -> str:
    """The page with the section of this name in the place of the one that it has, or at its end."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    new = f"{begin}\n{text.strip()}\n{end}"
    old = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if old.search(page):
        return old.sub(lambda _: new, page)
    return f"{page.strip()}\n\n{new}\n"


def write(section: Section, command: str, folder: Path = PAGES) -> None:
    """Put a section, and its picture, into the page."""
    picture = f"{NAME}-{section.name.lower()}.png"
    plot(section.rows, folder / picture)
    path = folder / f"{NAME}.md"
    page = path.read_text() if path.exists() else f"{HEAD}\n\n{LEFT_OUT}\n"
    text = section.markdown(command).replace("# ", "## ", 1)
    text += f"\n\n![{section.title}]({picture})"
    write_page(NAME, with_section(page, section.name, text), folder)


def plot(rows: Sequence[Row], path: Path) -> None:
    """The ratios with their intervals and targets, one under the other."""
    import matplotlib.figure  # not before it is asked for: it takes half a second

    figure = matplotlib.figure.Figure(figsize=(8, 0.8 + 0.28 * len(rows)), layout="constrained")
    axes = figure.subplots()
    path.parent.mkdir(parents=True, exist_ok=True)
    for place, row in enumerate(reversed(rows)):
        value = row.estimate
        colour = {True: "C2", False: "C3", None: "C7"}[row.met]
        axes.plot([value.low, value.high], [place, place], colour, linewidth=1.5)
        axes.plot([value.value], [place], "o", color=colour, markersize=4)
        target = row.at_most if row.at_least is None else row.at_least
        if target is not None:
            axes.plot([target], [place], "|", color="black", markersize=9)
    axes.set_yticks(range(len(rows)), [row.id for row in reversed(rows)], fontsize=7)
    axes.axvline(1.0, color="0.8", linewidth=0.8, zorder=0)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel("adaptive over the rival (bar: interval, tick: target)")
    figure.savefig(path, dpi=110)
