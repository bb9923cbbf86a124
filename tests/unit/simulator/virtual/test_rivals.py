"""Rivals are found by name in the benches, and their absence is said."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.baselines.options import RIVALS
from controller.errors import ConfigError
from simulator.virtual import rivals
from simulator.virtual.rivals import NAMED, of_benches, options_of


def test_the_names_are_those_that_the_benches_have() -> None:
    assert set(NAMED) == set(RIVALS)
    assert {name: options_of(name) for name in NAMED} == RIVALS
    assert options_of("adaptive") is None


def test_without_the_benches_that_is_said_in_a_line() -> None:
    with pytest.raises(ConfigError) as raised:
        of_benches("benchmarks.not_there:RIVALS", "qoserve")
    (problem,) = raised.value.problems
    assert problem.startswith("policy: 'qoserve' is not allowed here: rivals stand in benchmarks/")


def test_an_editable_installation_finds_them_from_any_folder(tmp_path: Path) -> None:
    """Such an installation maps the wheel's packages one by one, and not the checkout's folder."""
    script = (
        "import sys, importlib.machinery as m\n"
        f"root = {rivals.CHECKOUT!r}\n"
        "class Mapped:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('simulator', 'controller', 'replicas', 'configs'):\n"
        "            return m.PathFinder.find_spec(name, [root])\n"
        "sys.meta_path.append(Mapped())\n"
        "from simulator.virtual.rivals import options_of\n"
        "print(options_of('qoserve').__module__)\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    told = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout == "benchmarks.baselines.options\n"
