"""What a release goes by: this version everywhere, and its part of CHANGELOG.md."""

import pytest

from controller.version import RELEASE
from replicas.workarounds.vllm_versions import OLDEST
from tools import release


def test_manifests_and_chart_name_this_version():
    release.check(None)
    assert release.version() == RELEASE
    assert release.CPU_BUILDS["oldest"] == OLDEST


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A tree of version 1.2.0 with nothing wrong."""
    for path, text in release.NAMED.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text.format("1.2.0"))
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    parts = "## [Unreleased]\n\n## [1.2.0] - 2026-12-01\n\n### Added\n- This.\n\n"
    parts += "## [1.1.0] - 2026-11-01\n- That.\n"
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{parts}")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path


def test_the_notes_of_a_version_end_where_the_next_one_begins(tree):
    release.check("v1.2.0")
    assert release.notes("1.2.0") == "### Added\n- This.\n"
    assert release.notes("1.1.0") == "- That.\n"


WRONG = [
    ("v1.3.0", None, None, "version 1.2.0 is not that of the tag v1.3.0"),
    (None, "k8s/chart/values.yaml", "image: brimful:1.1.0\n", "must hold 'image: brimful:1.2.0'"),
    ("v1.2.0", "CHANGELOG.md", "## [Unreleased]\n- This.\n", "no part '## [1.2.0] - YYYY-MM-DD'"),
]


@pytest.mark.parametrize(("tag", "path", "text", "says"), WRONG)
def test_what_is_not_of_this_version_is_named(tag, path, text, says, tree):
    if path is not None:
        (tree / path).write_text(text)
    with pytest.raises(release.ReleaseError) as error:
        release.check(tag)
    assert says in str(error.value)
