"""The variables that Ray is started with."""

import subprocess
import sys

import pytest

from serve_app import cli
from serve_app.environment import variables


@pytest.fixture(autouse=True)
def _none_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in variables():
        monkeypatch.delenv(name, raising=False)


def test_a_shell_reads_them_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["env"]) == 0
    script = f'{capsys.readouterr().out}\nexec "{sys.executable}" -c "import os; print(os.environ)"'
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    for name, value in variables().items():
        assert f"'{name}': '{value}'" in told.stdout
