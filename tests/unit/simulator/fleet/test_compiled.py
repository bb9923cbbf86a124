import shutil
from pathlib import Path

import pytest

from simulator.fleet.compiled import HERE, SOURCES, cache_folder


@pytest.mark.parametrize("source", SOURCES)
def test_compiled_code_is_thrown_away_when_any_of_its_sources_changes(
    tmp_path: Path, source: str
) -> None:
    for name in SOURCES:
        shutil.copy(HERE / name, tmp_path)
    before = cache_folder(tmp_path)
    assert cache_folder(tmp_path) == before
    (tmp_path / source).write_text((tmp_path / source).read_text() + "\n# another\n")
    assert cache_folder(tmp_path) != before


def test_every_file_that_compiled_code_is_made_of_is_a_source() -> None:
    compiling = {path.name for path in HERE.glob("*.py") if "\n@compiled\n" in path.read_text()}
    assert compiling == {"fluid.py", "replica.py", "steps.py"}
    assert {*compiling, "compiled.py", "state.py"} == set(SOURCES)
