"""What searches for rivals' constants ended with: ``settings.json``.

A run with all searches takes most of a day. With ``--no-search`` each rival has what an earlier
search had found for it, and only the draws of the figures are run.
"""

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, RootModel

from controller.data_file import read_json
from controller.errors import ConfigError

FILE = Path(__file__).parent / "settings.json"


class Setting(BaseModel):
    """A rival's best setting.

    Args:
        spec: as ``benchmarks.virtual.plan`` reads it.
        fracs: its capacity on the pilot's draws, shares of the fluid limit, where that is what was
            searched; one for each workload.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    spec: str
    fracs: tuple[float, ...] = ()


class _File(RootModel[dict[str, dict[str, dict[str, Setting]]]]):
    """By part, workload and rival."""


class Settings:
    """Settings by part, workload and rival.

    Args:
        searches: they are searched anew, and ``keep`` replaces what stood here.

    Raises:
        ConfigError: the file is wrong.
    """

    def __init__(self, path: Path = FILE, *, searches: bool = True) -> None:
        self.searches = searches
        self._path = path
        self._found = read_json(path, _File).root if path.exists() else {}

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
        """Take it in the place of what stood here; ``write`` puts it into the file."""
        self._found.setdefault(part, {}).setdefault(workload, {})[rival] = setting

    def write(self) -> None:
        """Replace the file."""
        found = {
            part: {
                workload: {rival: one.model_dump(mode="json") for rival, one in of.items()}
                for workload, of in workloads.items()
            }
            for part, workloads in self._found.items()
        }
        self._path.write_text(json.dumps(found, indent=1) + "\n")
