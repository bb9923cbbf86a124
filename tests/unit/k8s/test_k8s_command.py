"""``brimful check`` on what kustomize prints: by a pipe, and with another definition."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controller.errors import ConfigError
from serve_app.checks.crd import read_crd
from tests.manifests import ROOT
from tools import kubernetes
from tools.kubernetes import K8S, OVERLAYS, KubernetesError, render, run

BRIMFUL = [sys.executable, "-m", "serve_app.cli", "check"]


def check(*arguments: str, text: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [*BRIMFUL, *arguments, "-"]
    return subprocess.run(command, input=text, env=env, capture_output=True, text=True, check=False)


def test_an_overlay_comes_in_by_a_pipe(crd_file):
    done = check("--crd", str(crd_file), text=render(OVERLAYS / "ha"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "ok"


def test_a_misspelt_field_in_a_pipe_is_named_and_the_status_is_2():
    done = check(text=render(OVERLAYS / "cpu").replace("maxReplicas", "maxReplica"))
    assert done.returncode == 2
    place = "spec.rayClusterConfig.workerGroupSpecs[0]"
    assert (
        f"error: -: {place}: unknown key 'maxReplica'; did you mean 'maxReplicas'?" in done.stderr
    )


NO_CRD = [
    ("a: [", "not valid YAML"),
    ("kind: ConfigMap", "must hold KubeRay's CustomResourceDefinition of RayService"),
    ("spec: {names: {kind: RayCluster}}", "must hold KubeRay's CustomResourceDefinition"),
    ("spec: {names: {kind: RayService}, versions: [{name: v2}]}", "with version v1"),
    ("[]", "must hold KubeRay's"),
    (None, "cannot read it: No such file"),
]


@pytest.mark.parametrize(("text", "says"), NO_CRD)
def test_a_definition_that_is_none_is_refused(text: str | None, says: str, tmp_path: Path):
    path = tmp_path / "crd.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_crd(path)
    assert str(path) in str(error.value) and says in str(error.value)


def test_where_kustomize_fails_it_says_why():
    with pytest.raises(KubernetesError, match=r"kubectl kustomize .*no-such"):
        render(K8S / "no-such")
    with pytest.raises(KubernetesError, match="helm nonsense"):
        run("helm", "nonsense")


def test_where_there_is_no_program_and_no_wheel_it_says_what_to_do(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(kubernetes, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(KubernetesError, match="put kubectl and helm on the path: the wheel"):
        render(OVERLAYS / "cpu")


def test_programs_come_from_the_wheel_that_the_lock_pins(monkeypatch, tmp_path: Path):
    lock = tmp_path / "pin.lock"
    lock.write_text("no-such-package-of-brimful==1.0 --hash=sha256:" + "0" * 64 + "\n")
    monkeypatch.setattr(kubernetes, "CACHE", tmp_path)
    monkeypatch.setattr(kubernetes, "LOCK", lock)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(KubernetesError, match=r"pip could not fetch what pin.lock pins .*on the"):
        run("kubectl", "version")
