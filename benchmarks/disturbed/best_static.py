"""What searches for the best static settings have found: ``best_static.json``, row by row."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.contests.tuning import Setting
from benchmarks.disturbed.replays import Draw
from benchmarks.disturbed.rows import Row
from benchmarks.disturbed.search import Best
from controller.errors import ConfigError

FILE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True, slots=True)
class Entry:
    """A row's best static setting.

    Args:
        itl_ms, rate_per_s: of the row as it was searched; to three digits.
        j: what it reached there.
        candidates: out of how many settings.
        commit: which code searched.
    """

    itl_ms: float
    rate_per_s: float
    max_num_seqs: int
    max_num_batched_tokens: int
    j: float
    candidates: int
    commit: str

    @property
    def setting(self) -> Setting:
        return Setting(self.max_num_seqs, self.max_num_batched_tokens)


def entry_of(row: Row, best: Best, commit: str) -> Entry:
    """What a search of this row has found."""
    itl_ms, rate_per_s = _of(row)
    setting = best.setting
    return Entry(
        itl_ms,
        rate_per_s,
        setting.cap,
        setting.chunk,
        float(f"{best.j:.4g}"),
        best.candidates,
        commit,
    )


def read(path: Path = FILE) -> dict[str, Entry]:
    """All that was found; by the row's id."""
    if not path.exists():
        return {}
    return {name: Entry(**entry) for name, entry in json.loads(path.read_text()).items()}


def write(found: Mapping[str, Entry], path: Path = FILE) -> None:
    """Put these into the file, beside what it has of other rows."""
    lines = (
        f" {json.dumps(name)}: {json.dumps(asdict(entry))}"
        for name, entry in {**read(path), **found}.items()
    )
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    new.replace(path)


def unsearched(rows: Sequence[Row], found: Mapping[str, Entry]) -> list[Row]:
    """The rows that were not searched as they are now: another recording has another rate."""
    return [
        row
        for row in rows
        if (entry := found.get(row.id)) is None or (entry.itl_ms, entry.rate_per_s) != _of(row)
    ]


def settings_of(rows: Sequence[Row], found: Mapping[str, Entry]) -> dict[Row, Setting]:
    """The best static setting of each row.

    Raises:
        ConfigError: some were not searched.
    """
    missing = unsearched(rows, found)
    if missing:
        names = ", ".join(row.id for row in missing)
        raise ConfigError([f"{FILE.name}: not searched: {names}: make disturbed-search does it"])
    return {row: found[row.id].setting for row in rows}


def _of(row: Row) -> tuple[float, float]:
    return row.load.itl_ms, float(f"{Draw(row).rate_per_s:.3g}")
