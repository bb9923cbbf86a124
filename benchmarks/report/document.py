"""The pages of docs/results, one a command."""

from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "results"


def write_page(name: str, text: str) -> None:
    """Write the page ``name``, replacing an earlier one."""
    PAGES.mkdir(parents=True, exist_ok=True)
    (PAGES / f"{name.lower()}.md").write_text(f"{text.strip()}\n")


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; all columns but the first to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
