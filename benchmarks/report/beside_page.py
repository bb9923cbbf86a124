"""Figures beside what a page of docs/results has: is what was published what this code gives?"""

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report.document import PAGES, markdown_table
from benchmarks.report.rows import Row, shown


def figures_of(page: str) -> dict[str, str]:
    """The figures of a page's tables, by the id that stands beside each in parentheses."""
    return dict(re.findall(r"\(`([\w-]+)`\) \| ([^|]*?) \|", page))


def beside_page(
    name: str, rows: Sequence[Row], folder: Path = PAGES, *, whole: bool = False
) -> str:
    """A table of the figures that are others than on the page, and of how many are the same.

    Args:
        name: of the page; one that is not there has no figures.
        whole: these are all that the page should have: others of it are shown as well.
    """
    path = folder / f"{name}.md"
    known = figures_of(path.read_text()) if path.exists() else {}
    lines, same = [], 0
    for row in rows:
        now = f"{shown(row.estimate.value)} {row.unit}".strip()
        if known.get(row.id) == now:
            same += 1
        else:
            lines.append((row.id, known.get(row.id, ""), now))
    gone = known.keys() - {row.id for row in rows} if whole else ()
    lines += [(each, known[each], "") for each in known if each in gone]
    text = f"{same} of {len(rows)} figures are those of docs/results/{name}.md"
    if not lines:
        return f"{text}."
    return f"{text}; the others:\n\n{markdown_table(('figure', 'page', 'now'), lines)}"
