"""``make versions``: the table's words, its page, and a registry that is out of reach."""

import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from replicas.workarounds.vllm_private import Thing
from replicas.workarounds.vllm_source import VllmSource
from tools import versions


def test_the_page_is_what_the_command_writes() -> None:
    assert versions.PAGE.read_text() == versions.page(), "python -m tools.versions --write"


@pytest.fixture
def source(tmp_path: Path) -> VllmSource:
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "a.py").write_text("class Here:\n    new = 1\n")
    return VllmSource(tmp_path)


@pytest.mark.parametrize(
    ("thing", "release", "said"),
    [
        (Thing(("vllm.a:Here",)), "0.33.0", "there"),
        (Thing(("vllm.a:Here.old", "vllm.a:Here.new")), "0.33.0", "there, as new"),
        (Thing(("vllm.b:Here", "vllm.a:Here")), "0.33.0", "there, as vllm.a"),
        (Thing(("vllm.b:Here",)), "0.33.0", "moved: vllm.a"),
        (Thing(("vllm.b:None",)), "0.33.0", "gone"),
        (Thing(("vllm.b:None",), (0, 29)), "0.29.0", "gone"),
        (Thing(("vllm.b:None",), (0, 29)), "0.28.1", "not there yet"),
    ],
)
def test_a_thing_is_there_moved_or_gone(
    source: VllmSource, thing: Thing, release: str, said: str
) -> None:
    assert versions.state(thing, release, source) == said


def pip(monkeypatch: pytest.MonkeyPatch, cache: Path, *, works: bool) -> None:
    def run(command: list[str], **_: Any) -> SimpleNamespace:
        if not works:
            return SimpleNamespace(returncode=1, stderr="WARNING\nERROR: no route to host\n")
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "vllm.whl", "w") as wheel:
            wheel.writestr("vllm/__init__.py", "a = 1")
            wheel.writestr("vllm/kernel.so", "no source")
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(versions, "CACHE", cache)


def test_of_a_wheel_the_sources_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip(monkeypatch, tmp_path / "cache", works=True)
    folder = versions.folder_of("9.9.9")
    assert [path.name for path in folder.iterdir()] == ["__init__.py"]
    metadata = folder.parent / "vllm-9.9.9+cpu.dist-info" / "METADATA"
    assert "Version: 9.9.9+cpu" in metadata.read_text()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["9.9.9"]


def test_a_registry_out_of_reach_is_one_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pip(monkeypatch, tmp_path, works=False)
    assert versions.main(["9.9.9"]) == 1
    assert capsys.readouterr().err == (
        "error: pip could not fetch vllm==9.9.9: ERROR: no route to host\n"
    )


def test_where_control_lacks_something_the_command_fails(
    monkeypatch: pytest.MonkeyPatch,
    source: VllmSource,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(versions, "folder_of", lambda release: tmp_path)
    assert versions.main(["9.9.9", "--changed"]) == 1
    assert "vLLM 9.9.9 lacks vllm.v1.request:Request.status (gone)" in capsys.readouterr().out
