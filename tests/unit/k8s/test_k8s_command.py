"""``brimful check`` on what kustomize prints, by a pipe."""

import io
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from serve_app import source
from serve_app.cli import main
from tools.kubernetes import OVERLAYS, render


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Text on standard input, which can be read once."""

    def piped(text: str) -> None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
        source._piped.cache_clear()

    return piped


def test_an_overlay_comes_in_by_a_pipe(piped, capsys):
    piped(render(OVERLAYS / "ha"))
    assert main(["check", "-"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ok"
