"""The tiny model is made once, and another kind of it anew."""

from pathlib import Path

import pytest

from serve_app import cli
from serve_app.demo import tiny_model
from serve_app.demo.model_folder import WEIGHTS
from serve_app.demo.tiny_model import make_tiny_model


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds that were made, each a file instead of the weights."""
    kinds: list[str] = []

    def save(path: Path, kind: str, seed: int) -> None:
        kinds.append(kind)
        (path / WEIGHTS).write_text(f"{kind} {seed}")

    monkeypatch.setattr(tiny_model, "_save_tokenizer", lambda path: None)
    monkeypatch.setattr(tiny_model, "_save_model", save)
    return kinds


def test_what_was_not_made_whole_is_made_again(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tiny_model(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(
            tiny_model, "_save_model", lambda *of: (tmp_path / "no" / "disk").write_text("")
        )
        with pytest.raises(FileNotFoundError):
            make_tiny_model(tmp_path, "mixtral")
    # The weights may be of either kind now, so neither is taken as it stands.
    make_tiny_model(tmp_path)
    assert made == ["llama", "llama"]


@pytest.mark.parametrize("argv", [("tiny-model",), ("model", "--kind", "llama")])
def test_the_command_makes_it_by_either_name(
    tmp_path: Path, made: list[str], argv: tuple[str, ...]
) -> None:
    assert cli.main([*argv, str(tmp_path)]) == 0
    assert made == ["llama"]
