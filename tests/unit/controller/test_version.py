"""Which code this is: any change of the controller's source is another version."""

import tomllib
from pathlib import Path

import pytest

from controller.version import RELEASE, VERSION, digest

REPO = Path(__file__).parents[3]


def test_it_is_the_packages_version_and_the_sources_digest() -> None:
    packaged = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["version"]
    assert packaged == RELEASE
    assert f"{RELEASE}+{digest(REPO / 'controller')}" == VERSION


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.py").write_text("one")
    (tmp_path / "inner" / "b.py").write_text("two")
    return tmp_path


def test_what_is_not_source_does_not_count(package: Path) -> None:
    before = digest(package)
    (package / "a.pyc").write_text("compiled")
    assert digest(package) == before
    assert len(before) == 8


@pytest.mark.parametrize(
    ("path", "text"), [("a.py", "One"), ("inner/b.py", "2"), ("c.py", ""), ("inner/a.py", "one")]
)
def test_a_module_changed_or_added_counts(package: Path, path: str, text: str) -> None:
    before = digest(package)
    (package / path).write_text(text)
    assert digest(package) != before


def test_a_module_moved_counts(package: Path) -> None:
    before = digest(package)
    (package / "a.py").rename(package / "inner" / "a.py")
    assert digest(package) != before
