"""Settings that earlier searches ended with: where a search begins.

A search from a policy's usual settings takes some fifty runs of a day, one that only has to look
around what was best before takes half of them, and it is never worse than that.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import RootModel

from benchmarks.fleet.contest import GRIDS, Found
from controller.data_file import read_json

FILE = Path(__file__).parent / "starts.json"


class _File(RootModel[dict[str, dict[str, str]]]):
    """By day and policy a spec."""


class Starts:
    """Settings by day and policy, from a file.

    Raises:
        ConfigError: the file is wrong.
    """

    def __init__(self, path: Path = FILE) -> None:
        self._path = path
        self._by_day = read_json(path, _File).root if path.exists() else {}

    def of(self, day: str, policy: str) -> str | None:
        """What was best on this day, else on the first day of which it is known; None: on none."""
        known = [self._by_day.get(day, {}), *self._by_day.values()]
        return next((specs[policy] for specs in known if policy in specs), None)

    def keep(self, by_day: Mapping[str, Found]) -> None:
        """Write what was best on these days; of all others the file keeps what it has."""
        for day, found in by_day.items():
            for name in GRIDS:
                if (one := found.get(f"{name} tuned")) is not None:
                    self._by_day.setdefault(day, {})[name] = one.spec
        self._path.write_text(json.dumps(self._by_day, indent=1) + "\n")
