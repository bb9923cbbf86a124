"""The tiny model is made once, and once for each kind."""

from pathlib import Path

import pytest

from serve_app import cli
from serve_app.demo import tiny_model
from serve_app.demo.model_folder import WEIGHTS


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


@pytest.mark.parametrize("argv", [("tiny-model",), ("model", "--kind", "llama")])
def test_the_command_makes_it_by_either_name(
    tmp_path: Path, made: list[str], argv: tuple[str, ...]
) -> None:
    assert cli.main([*argv, str(tmp_path)]) == 0
    assert made == ["llama"]
