"""``make install``: what is compiled, and what is left to who imports it."""

from pathlib import Path

import pytest

from tools.bytecode import compile_packages


def make(folder: Path, *paths: str, text: str = "x = 1\n") -> None:
    for path in paths:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def bytecode(folder: Path) -> set[str]:
    return {path.name.partition(".")[0] for path in folder.rglob("*.pyc")}


def test_what_does_not_compile_is_passed_over_and_not_counted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, "a/one.py", "a/two.py")
    make(tmp_path, "a/template.py", text="{{ this is no Python }}")
    assert compile_packages(tmp_path) == 2
    assert bytecode(tmp_path) == {"one", "two"}
    assert capfd.readouterr() == ("", "")
