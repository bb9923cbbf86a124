"""What searches for rivals' constants ended with."""

from pathlib import Path

import pytest

from benchmarks.contests.classes import GROUNDS as CLASSES
from benchmarks.contests.sweeps import OFFLINE, SWEEPS, Point
from benchmarks.rivals import r1_capacity, r2_paced, r4_offline
from benchmarks.rivals.settings import Setting, Settings
from benchmarks.virtual.plan import engine_of, parse_policy
from controller.config import Sla
from controller.errors import ConfigError
from replicas.profile_file import load_profile

FIG3 = load_profile("paper-fig3")


def shipped() -> list[tuple[str, str, str, int]]:
    """What a run without a search asks for: part, workload, rival, and how many pilots' draws."""
    return [
        *(("R1", c.name, rival, 1) for c in r1_capacity.GROUNDS for rival in SWEEPS),
        *(("R1", "all on paper-fig3", r, len(r1_capacity.CONTESTS_ALIKE)) for r in SWEEPS),
        *(("R1-reasoning", "reasoning", rival, 1) for rival in SWEEPS),
        *(("R2", c.name, "qoserve", 1) for c in r2_paced.GROUNDS),
        *(("R3", g, "qoserve", 0) for g in CLASSES),
        *(("R4", c.name, rival, 0) for c in r4_offline.GROUNDS for rival in OFFLINE),
    ]  # fmt: skip


def test_of_every_search_of_the_page_the_shipped_file_has_what_it_found() -> None:
    settings = Settings(searches=False)
    for part, workload, rival, pilots in shipped():
        one = settings.of(part, workload, rival)
        assert len(one.fracs) == pilots and all(0.01 < frac < 2 for frac in one.fracs)
        assert Point.of(one.spec).spec == one.spec
        assert Point.of(one.spec).rival == rival
        parse_policy(one.spec, Sla(itl_ms=50, ttft_ms=2000), engine_of(FIG3))


def test_what_a_search_found_replaces_what_stood_there_once_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    first = Settings(path)
    first.keep("R1", "azure", "ppas", Setting(spec="ppas", fracs=(0.9,)))
    first.keep("R1", "azure", "sarathi", Setting(spec="sarathi"))
    assert not path.exists()
    first.write()
    second = Settings(path)
    better = Setting(spec="ppas:budget_cap=512", fracs=(0.95,))
    second.keep("R1", "azure", "ppas", better)
    second.write()
    third = Settings(path, searches=False)
    assert third.of("R1", "azure", "ppas") == better
    assert third.of("R1", "azure", "sarathi") == Setting(spec="sarathi")


def test_a_setting_that_nobody_searched_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no search has ended for ppas on azure in R1"):
        Settings(tmp_path / "none.json", searches=False).of("R1", "azure", "ppas")


def test_a_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"R1": {"azure": {"ppas": {"spec": 3}}}}')
    with pytest.raises(ConfigError, match=r"settings\.json:1: R1\.azure\.ppas\.spec"):
        Settings(path)
