"""Rivals are found by name in the benches, and their absence is said."""

from benchmarks.baselines.options import RIVALS
from simulator.virtual.rivals import NAMED, options_of


def test_the_names_are_those_that_the_benches_have() -> None:
    assert set(NAMED) == set(RIVALS)
    assert {name: options_of(name) for name in NAMED} == RIVALS
    assert options_of("adaptive") is None
