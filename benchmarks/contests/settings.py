"""Settings found by searches, by part, contest and rival: ``settings.json``."""

import json
import os
from pathlib import Path

from pydantic import RootModel

from controller.data_file import read_json

FILE = Path(__file__).with_suffix(".json")


class _File(RootModel[dict[str, dict[str, dict[str, str]]]]):
    """A spec for ``simulator.virtual.plan``, by part, contest and rival."""


class Settings:
    """Settings of earlier searches.

    Raises:
        ConfigError: the file is wrong.
    """

    def __init__(self, path: Path = FILE) -> None:
        self._path = path
        self._found = read_json(path, _File).root if path.exists() else {}

    def of(self, part: str, scenario: str) -> dict[str, str]:
        """Specs by rival, of finished searches."""
        return dict(self._found.get(part, {}).get(scenario, {}))

    def keep(self, part: str, scenario: str, specs: dict[str, str]) -> None:
        """Write the result of a search into the file."""
        self._found.setdefault(part, {}).setdefault(scenario, {}).update(specs)
        new = self._path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(self._found, indent=1) + "\n")
        new.replace(self._path)
