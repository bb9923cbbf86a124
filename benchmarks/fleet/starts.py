"""Settings that earlier searches ended with: where a search begins.

A search from a policy's usual settings takes some fifty runs of a day, one that only has to look
around what was best before takes half of them, and it is never worse than that.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from pydantic import RootModel

from benchmarks.fleet.contest import GRIDS, Found
from benchmarks.fleet.one_for_all import OneForAll
from controller.data_file import read_json

FILE = Path(__file__).parent / "starts.json"


class _File(RootModel[dict[str, dict[str, str]]]):
    """By day or group of days, and by policy, a spec."""


class Starts:
    """Settings by day, or by a group of days that one setting is to serve, and by policy.

    Raises:
        ConfigError: the file is wrong.
    """

    def __init__(self, path: Path = FILE) -> None:
        self._path = path
        self._by_day = read_json(path, _File).root if path.exists() else {}

    def of(self, day: str, policy: str) -> str | None:
        """What was best on this very day; None: nobody knows.

        Not another day's: around that, a search ends at a worse setting than from the usual ones
        on one day of four.
        """
        return self._by_day.get(day, {}).get(policy)

    def keep(
        self,
        by_day: Mapping[str, Found],
        cut: Mapping[str, Collection[str]],
        shared: Mapping[str, OneForAll | None],
    ) -> None:
        """Write what was best on these days; of all others the file keeps what it has.

        Args:
            cut: by day the policies whose search was cut short: of these nothing is written.
            shared: by group of days the best with one setting; None: of it nothing is written.
        """
        for day, found in by_day.items():
            for name in GRIDS:
                one = found.get(f"{name} tuned")
                if one is not None and name not in cut.get(day, ()):
                    self._by_day.setdefault(day, {})[name] = one.spec
        for group, best in shared.items():
            if best is not None:
                self._by_day.setdefault(group, {})[best.spec.partition(":")[0]] = best.spec
        self._path.write_text(json.dumps(self._by_day, indent=1) + "\n")
