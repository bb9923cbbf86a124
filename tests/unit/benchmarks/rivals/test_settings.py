"""What searches for rivals' constants ended with."""

from pathlib import Path

import pytest

from benchmarks.rivals.settings import Setting, Settings
from controller.errors import ConfigError


def test_what_a_search_found_replaces_what_stood_there_once_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    first = Settings(path)
    first.keep("R1", "azure", "ppas", Setting(spec="ppas", fracs={"azure": 0.9}))
    first.keep("R1", "azure", "sarathi", Setting(spec="sarathi"))
    assert not path.exists()
    first.write("R1")
    second = Settings(path)
    better = Setting(spec="ppas:budget_cap=512", fracs={"azure": 0.95})
    second.keep("R1", "azure", "ppas", better)
    second.write("R1")
    third = Settings(path, searches=False)
    assert third.of("R1", "azure", "ppas") == better
    assert third.of("R1", "azure", "sarathi") == Setting(spec="sarathi")
    assert [each.name for each in tmp_path.iterdir()] == ["settings.json"]


def test_two_runs_of_other_parts_do_not_lose_each_others(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    one, other = Settings(path), Settings(path)
    one.keep("R1", "azure", "ppas", Setting(spec="ppas"))
    other.keep("R4", "azure", "ppas", Setting(spec="ppas"))
    other.keep("R3", "azure", "qoserve", Setting(spec="qoserve"))
    one.write("R1")
    other.write("R4")
    found = Settings(path, searches=False)
    assert found.of("R1", "azure", "ppas") == found.of("R4", "azure", "ppas")
    with pytest.raises(ConfigError):  # of a part that did not run to its end
        found.of("R3", "azure", "qoserve")


def test_a_setting_that_nobody_searched_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no search has ended for ppas on azure in R1"):
        Settings(tmp_path / "none.json", searches=False).of("R1", "azure", "ppas")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [('"spec": 3', r"ppas\.spec: "), ('"spec": "x", "y": 1', "ppas: unknown key 'y'")],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, wrong: str, told: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(f'{{"R1": {{"azure": {{"ppas": {{{wrong}}}}}}}}}')
    with pytest.raises(ConfigError, match=rf"settings\.json:1: R1\.azure\.{told}"):
        Settings(path)
