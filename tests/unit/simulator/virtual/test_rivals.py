"""Rivals are found by name in the benches, and their absence is said."""

import pytest

from benchmarks.baselines.options import RIVALS
from controller.errors import ConfigError
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
