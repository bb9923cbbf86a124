"""The variables that Ray is started with."""

import subprocess
import sys

import pytest
import yaml

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


def test_what_the_user_has_set_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S", "it's 60")
    cli.main(["env"])
    assert """RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S='it'"'"'s 60'""" in capsys.readouterr().out
    cli.main(["env", "--yaml"])
    listed = yaml.safe_load(capsys.readouterr().out)
    assert "it's 60" in [one["value"] for one in listed]
