"""What searches for rivals' constants ended with: ``settings.json``.

A run with all searches takes most of a day. With ``--no-search`` each rival has what an earlier
search had found for it, and only the draws of the figures are run.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, RootModel

from benchmarks.contests.sweeps import Point
from controller.data_file import read_json
from controller.errors import ConfigError

FILE = Path(__file__).parent / "settings.json"


class Setting(BaseModel):
    """A rival's best setting.

    Args:
        spec: as ``simulator.virtual.plan`` reads it.
        fracs: where a capacity was searched, by workload what it reached on the pilot's draw, a
            share of the fluid limit.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    spec: str
    fracs: Mapping[str, float] = {}

    @property
    def point(self) -> Point:
        """The spec in parts; its values stay as they are told there."""
        rival, _, told = self.spec.partition(":")
        pairs = (pair.split("=") for pair in told.split(",") if pair)
        return Point(rival, tuple((key, value) for key, value in pairs))


class _File(RootModel[dict[str, dict[str, dict[str, Setting]]]]):
    """By part, workload and rival."""


class Settings:
    """Settings by part, workload and rival.

    Args:
        searches: they are searched anew, and ``keep`` and ``write`` replace what stood here.

    Raises:
        ConfigError: the file is wrong.
    """

    def __init__(self, path: Path = FILE, *, searches: bool = True) -> None:
        self.searches = searches
        self._path = path
        self._found = self._read()
        self._made: dict[str, dict[str, dict[str, Setting]]] = {}

    def of(self, part: str, workload: str, rival: str) -> Setting:
        """What a search found.

        Raises:
            ConfigError: there was none.
        """
        found = self._found.get(part, {}).get(workload, {}).get(rival)
        if found is None:
            raise ConfigError(
                [
                    f"{self._path.name}: no search has ended for {rival} on {workload} in {part}:"
                    " without --no-search it is made"
                ]
            )
        return found

    def keep(self, part: str, workload: str, rival: str, setting: Setting) -> None:
        """What a search has found now; ``write`` puts it into the file."""
        self._made.setdefault(part, {}).setdefault(workload, {})[rival] = setting

    def write(self, part: str) -> None:
        """Put what was found of a part into the file, beside what another run has put there."""
        found = self._read()
        for workload, of in self._made.pop(part, {}).items():
            found.setdefault(part, {}).setdefault(workload, {}).update(of)
        text = json.dumps(_File(found).model_dump(mode="json"), indent=1)
        text = re.sub(r"\n( {4,}| {3}(?=\}))", " ", text)  # a line for each setting
        new = self._path.with_suffix(f".{os.getpid()}")
        new.write_text(f"{text}\n")
        new.replace(self._path)

    def _read(self) -> dict[str, dict[str, dict[str, Setting]]]:
        return read_json(self._path, _File).root if self._path.exists() else {}
