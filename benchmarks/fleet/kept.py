"""Results that are kept from one bench to the next: each only for the code and data it came from.

A result's key ends with a digest of every module of this project that its run imports, of the
shipped days, lengths and step times, and of the release of Ray, whose autoscaling is called as it
is installed. Ours depends on ``serve_app``; a rival and the oracle do not.
"""

import json
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path

from benchmarks.report.code import digest, imported_by
from configs import shipped
from simulator.fleet.course import Result
from simulator.fleet.policies import OURS

RUN = "simulator.fleet.course"
# Imported by name, so that no import leads to them.
RIVALS = "benchmarks.fleet.rivals.registry"
OUR_POLICY = "serve_app.autoscaling"
NOT_OF_RIVALS = "serve_app"
DATA = ("profiles", "traffic", "workloads")


@cache
def code_of(policy: str) -> str:
    """Eight hex digits that change with whatever a run of this policy stands on."""
    if policy == OURS:
        modules = imported_by([RUN, RIVALS, OUR_POLICY])
    else:
        modules = imported_by([RUN, RIVALS], without=NOT_OF_RIVALS)
    data = [path for name in DATA for path in sorted(shipped(name).iterdir())]
    return digest([*modules, *data], version("ray"))


class Kept:
    """Results in a file, by day, seed, start-up, policy with its settings, and code.

    Args:
        again: forget what stands there.
    """

    def __init__(self, path: Path, *, again: bool = False) -> None:
        self._path = path
        self._results: dict[str, Result] = {}
        if again:
            path.unlink(missing_ok=True)
        self._read()

    def get(self, at: str, spec: str) -> Result | None:
        """The result of this policy by today's code; None: there is none.

        Args:
            at: day, seed and start-up.
        """
        return self._results.get(_key(at, spec))

    def all_of(self, at: str, policy: str) -> list[Result]:
        """All results of this policy by today's code, at whatever settings."""
        here = (one for key, one in self._results.items() if key == _key(at, one.spec))
        return [one for one in here if one.policy == policy and one.spec != OURS]

    def add(self, at: str, spec: str, result: Result) -> None:
        """Keep it, in the file as well, beside what another bench has written there meanwhile."""
        self._read()
        self._results[_key(at, spec)] = result
        self._path.parent.mkdir(parents=True, exist_ok=True)
        rows = {key: asdict(one) for key, one in self._results.items()}
        self._path.write_text(json.dumps(rows, indent=1))

    def _read(self) -> None:
        if self._path.exists():
            self._results |= {
                key: Result(**one) for key, one in json.loads(self._path.read_text()).items()
            }


def _key(at: str, spec: str) -> str:
    return f"{at} {spec} {code_of(spec.partition(':')[0])}"
