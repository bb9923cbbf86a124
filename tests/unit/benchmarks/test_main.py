"""Every bench has a name, and is there."""

from importlib.util import find_spec

import pytest

from benchmarks.__main__ import BENCHES, main


def test_without_a_name_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main([]), main(["unknown"])) == (0, 2)
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in BENCHES)


@pytest.mark.parametrize("module", [module for module, _ in BENCHES.values()])
def test_each_is_there(module: str) -> None:
    assert find_spec(f"benchmarks.{module}") is not None
