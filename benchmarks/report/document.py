"""docs/RESULTS.md: a section per command, which that command alone writes."""

import re
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "RESULTS.md"
PLOTS = ROOT / "docs" / "results"
TITLE = "# Results\n"


def write_section(name: str, text: str, path: Path = RESULTS) -> None:
    """Put ``text`` between the marks of section ``name``; a new section goes to the end."""
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    section = f"{begin}\n{text.strip()}\n{end}"
    path.parent.mkdir(parents=True, exist_ok=True)
    old = path.read_text() if path.exists() else TITLE
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if pattern.search(old):
        new = pattern.sub(lambda _: section, old)
    else:
        new = f"{old.rstrip()}\n\n{section}\n"
    path.write_text(new)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; all columns but the first to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
