"""``brimful check`` on what kustomize prints: by a pipe, and with another definition."""

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from controller.errors import ConfigError
from serve_app import source
from serve_app.checks.crd import read_crd
from serve_app.cli import main
from tools.kubernetes import OVERLAYS, render


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Text on standard input, which can be read once."""

    def piped(text: str) -> None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
        source._piped.cache_clear()

    return piped


def test_an_overlay_comes_in_by_a_pipe(crd_file, piped, capsys):
    piped(render(OVERLAYS / "ha"))
    assert main(["check", "--crd", str(crd_file), "-"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ok"


NO_CRD = [
    ("a: [", "not valid YAML"),
    ("kind: ConfigMap", "must hold KubeRay's CustomResourceDefinition of RayService"),
    ("spec: {names: {kind: RayService}, versions: [{name: v2}]}", "with version v1"),
    (None, "cannot be read: No such file"),
]


@pytest.mark.parametrize(("text", "says"), NO_CRD)
def test_a_definition_that_is_none_is_refused(text: str | None, says: str, tmp_path: Path):
    path = tmp_path / "crd.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_crd(path)
    assert str(path) in str(error.value) and says in str(error.value)
