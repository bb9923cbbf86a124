"""What a run of ``make rivals`` without a search asks for, and what it may write."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import benchmarks.rivals.__main__ as command
from benchmarks.contests.classes import GROUNDS as CLASSES
from benchmarks.contests.sweeps import OFFLINE, SWEEPS
from benchmarks.report.rows import Row, Section, exactly
from benchmarks.report.workers import Bench
from benchmarks.rivals import page, r1_capacity, r3_classes, r4_offline
from benchmarks.rivals.r1_raced import ALL
from benchmarks.rivals.settings import Setting, Settings
from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from simulator.virtual.plan import engine_of, parse_policy

FIG3 = load_profile("paper-fig3")


def shipped() -> list[tuple[str, str, str, set[str]]]:
    """What a run without a search asks for: part, workload, rival, and whose pilot's draws."""
    return [
        *(("R1", c.name, rival, {c.name}) for c in r1_capacity.GROUNDS for rival in SWEEPS),
        *(("R1", "all on paper-fig3", r, set(r1_capacity.CONTESTS_ALIKE)) for r in SWEEPS),
        *(("R1-reasoning", "reasoning", rival, {"reasoning"}) for rival in SWEEPS),
        *(("R3", g, "qoserve", set()) for g in CLASSES),
        *(("R4", c.name, rival, set()) for c in r4_offline.GROUNDS for rival in OFFLINE),
    ]  # fmt: skip


def test_of_every_search_of_the_page_the_shipped_file_has_what_it_found() -> None:
    settings = Settings(searches=False)
    for part, workload, rival, pilots in shipped():
        one = settings.of(part, workload, rival)
        assert set(one.fracs) == pilots and all(0.01 < frac < 2 for frac in one.fracs.values())
        assert one.point.spec == one.spec and one.point.rival == rival
        parse_policy(one.spec, Sla(itl_ms=50, ttft_ms=2000), engine_of(FIG3))


class Ran(list[str]):
    """The parts that ran; each has one figure and finds one setting."""

    def part(self, name: str) -> command.Part:
        def run(bench: Bench, names: Sequence[str], settings: Settings) -> Section:
            self.append(name)
            settings.keep(name, "azure", "ppas", Setting(spec="ppas:budget_cap=512"))
            row = Row(f"{name.lower()}_x-1", "x", "ratio", exactly(1.0))
            return Section(name, "title", "text", (row,))

        return run


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    found = Ran()
    parts = {name: (found.part(name), ("azure", "h100-70b")) for name in ("R1", "R3", "R4")}
    monkeypatch.setattr(command, "PARTS", parts)
    monkeypatch.setattr(command, "KEPT", tmp_path / "rivals.sqlite")
    path = tmp_path / "settings.json"
    monkeypatch.setattr(command, "Settings", lambda searches: Settings(path, searches=searches))
    monkeypatch.setattr(page, "PATH", tmp_path / "rivals.md")
    write = page.write
    monkeypatch.setattr(page, "write", lambda section, told: write(section, told, tmp_path))
    return found


def run(monkeypatch: pytest.MonkeyPatch, *argv: str) -> None:
    monkeypatch.setattr(sys, "argv", ["rivals", "--workers", "1", *argv])
    command.main()


def test_a_whole_part_is_written_with_its_settings_and_a_piece_is_not(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(monkeypatch, "--only", "R4:azure", "R1")
    assert ran == ["R4", "R1"]
    assert set(json.loads((tmp_path / "settings.json").read_text())) == {"R1"}
    text = (tmp_path / "rivals.md").read_text()
    assert "<!-- R1 -->" in text and "<!-- R4 -->" not in text


@pytest.mark.parametrize("how", [["--no-search"], ["--small"], ["--rival", "ppas"]])
def test_without_a_search_or_with_some_of_the_rivals_nothing_is_written(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    run(monkeypatch, "--only", "R1", "R4", *how)
    assert ran == ["R1", "R4"]
    assert not (tmp_path / "settings.json").exists() and not (tmp_path / "rivals.md").exists()


def test_figures_stand_beside_those_of_a_page_that_the_same_command_wrote(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "--only", "R1", "R3")
    capsys.readouterr()
    run(monkeypatch, "--no-search", "--only", "R1", "R3:azure")
    assert "1 of 1 figures are those of docs/results/rivals.md" in capsys.readouterr().out
    run(monkeypatch, "--no-search", "--only", "R1", "--seeds", "2")
    assert "docs/results" not in capsys.readouterr().out


@pytest.mark.parametrize("asked", [["R3"], ["R1"]])
def test_a_rival_that_cannot_be_chosen_there_is_refused_before_anything_runs(
    ran: Ran,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: list[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--rival", "static", "--only", "R4", *asked)
    assert ended.value.code == 2 and ran == []
    assert f"none of static can be chosen in {asked[0]}" in capsys.readouterr().err


def test_a_setting_that_is_missing_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "none.json"
    monkeypatch.setattr(command, "Settings", lambda searches: Settings(path, searches=searches))
    monkeypatch.setattr(command, "KEPT", tmp_path / "rivals.sqlite")
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--no-search", "--only", "R3:257-62")
    assert str(ended.value.code).startswith("error: none.json: no search has ended for qoserve")


def test_what_serves_all_contests_is_kept_and_found_again(tmp_path: Path) -> None:
    alike = tuple(c for c in r1_capacity.GROUNDS if c.name in r1_capacity.CONTESTS_ALIKE)
    found = r1_capacity.Raced(alike, ("ppas",))
    fracs = tuple(0.9 + k / 100 for k in range(len(alike)))
    for contest, frac in zip(alike, fracs, strict=True):
        found.tuned[contest.name, "ppas"] = r1_capacity.Tuned(r1_capacity.published("ppas"), frac)
    found.one["ppas"] = r1_capacity.Chosen(Setting(spec="ppas:budget_cap=512").point, fracs)
    settings = Settings(tmp_path / "settings.json")
    r1_capacity._keep("R1", found, settings)
    settings.write("R1")
    again = r1_capacity.Raced(alike, ("ppas",))
    known = Settings(tmp_path / "settings.json", searches=False)
    r1_capacity._recall("R1", again, known)
    assert (again.one, again.tuned) == (found.one, found.tuned)
    assert known.of("R1", ALL, "ppas").fracs[alike[0].name] == 0.9
    part = r1_capacity.Raced(alike[:2], ("ppas",))
    r1_capacity._recall("R1", part, known)
    assert not part.one  # what serves two of them is another setting


def test_qoserve_of_r3_is_taken_from_the_file() -> None:
    bench = Bench(None, (1,))  # type: ignore[arg-type]
    tuned = r3_classes.tuned_on(bench, tuple(CLASSES), Settings(searches=False))
    assert set(tuned) == set(CLASSES) and all("slack=gaps" in spec for spec in tuned.values())
