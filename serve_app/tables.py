"""Tables that fit their terminal: words wrap, numbers do not, nothing is cut."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

WIDEST = 1000


def new_table(words: Sequence[str], numbers: Sequence[str]) -> Table:
    """A table of columns with words, which may wrap, and of columns with numbers, which may not."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in words:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def console_for(table: Table, *, wide: bool) -> Console:
    """The console to print a table on; ``wide``: full width, whatever the terminal."""
    console = Console(highlight=False)
    if not wide:
        return console
    needed = Console(width=WIDEST).measure(table).maximum
    return Console(width=max(console.width, needed), highlight=False)
