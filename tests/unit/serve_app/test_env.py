"""The variables that Ray is started with."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from serve_app import cli, haproxy
from serve_app.environment import STREAMING, variables

ROOT = Path(__file__).parents[3]


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


def test_the_same_for_a_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["env", "--yaml"]) == 0
    listed = yaml.safe_load(capsys.readouterr().out)
    assert {one["name"]: one["value"] for one in listed} == variables()


def test_what_the_user_has_set_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S", "it's 60")
    cli.main(["env"])
    assert """RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S='it'"'"'s 60'""" in capsys.readouterr().out
    cli.main(["env", "--yaml"])
    listed = yaml.safe_load(capsys.readouterr().out)
    assert "it's 60" in [one["value"] for one in listed]


def test_the_manifests_have_the_same() -> None:
    manifest = next(yaml.safe_load_all((ROOT / "k8s/base/rayservice.yaml").read_text()))
    head = manifest["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]
    there = {one["name"]: one.get("value") for one in head["containers"][0]["env"]}
    assert {**STREAMING, **haproxy.ENVIRONMENT}.items() <= there.items()
    assert there[haproxy.OURS].endswith(haproxy.COMMAND)
