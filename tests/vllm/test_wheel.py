"""Every command from the built wheel, in a fresh environment and a folder of its own."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from controller.version import RELEASE
from serve_app.cli import COMMANDS

ROOT = Path(__file__).parents[2]
PACKAGES = ("controller", "replicas", "serve_app", "simulator", "configs")
FOLDERS = ("docs", "k8s", "tools")  # of the source distribution, in addition to the packages
MADE = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "MANIFEST.in")
SOURCES = ("CHANGELOG.md", "Dockerfile", "Dockerfile.cpu", ".dockerignore", "requirements.lock")
LICENSES = ("LICENSE", "NOTICE", "serve_app/console/static/uPlot.LICENSE")
IGNORED = shutil.ignore_patterns("__pycache__")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution."""
    tmp = tmp_path_factory.mktemp("sdist")
    source = tmp / "source"
    for name in (*PACKAGES, *FOLDERS):  # setuptools builds in the source tree
        shutil.copytree(ROOT / name, source / name, ignore=IGNORED)
    for name in (*MADE, *SOURCES):
        shutil.copy(ROOT / name, source)
    return tmp / setuptools_build("sdist", source)


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the source distribution gives."""
    tmp = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as packed:
        packed.extractall(tmp, filter="data")
    (source,) = tmp.iterdir()
    return tmp / setuptools_build("wheel", source)


def setuptools_build(what: str, source: Path) -> str:
    """The name of the file it built, next to ``source``."""
    build = f"from setuptools.build_meta import build_{what}; print(build_{what}('..'))"
    return finish([sys.executable, "-c", build], source).splitlines()[-1]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the wheel in it; what it depends on is borrowed."""
    tmp = tmp_path_factory.mktemp("installed")
    environment = tmp / "environment"
    finish([sys.executable, "-m", "venv", "--without-pip", str(environment)], tmp)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", f"--python={python}", "install", "--no-index", "--no-deps"]
    finish([*pip, str(wheel)], tmp)
    packages = next((environment / "lib").glob("python*")) / "site-packages"
    # Folders named by a .pth are searched, but .pth files in them are not read: the checkout,
    # which such a file of an editable install names, stays out of reach.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    where = finish([str(python), "-c", "import serve_app; print(serve_app.__file__)"], tmp)
    assert where.startswith(str(packages))
    return python.parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands are called: nothing of the checkout is there."""
    return tmp_path_factory.mktemp("elsewhere")


def finish(command: list[str], cwd: Path) -> str:
    """What it printed; it must end with status 0."""
    status, out, err = call(command, cwd)
    assert status == 0, err
    return out


def call(command: list[str], cwd: Path) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RAY_"))}
    environment |= {"COLUMNS": "80", "VLLM_TARGET_DEVICE": "cpu"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def files_of(*folders: str) -> set[str]:
    """The files of the checkout in these folders."""
    return {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_every_file_of_its_packages_and_the_licences(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        held = set(packed.namelist())
        told = wheel.name.rpartition("-py3-")[0]
        metadata = packed.read(f"{told}.dist-info/METADATA").decode()
    assert files_of(*PACKAGES) - held == set()
    assert {f"{told}.dist-info/licenses/{name}" for name in LICENSES} <= held
    assert f"\nVersion: {RELEASE}\n" in metadata


def test_beside_a_plain_vllm_it_changes_nothing(installed: Path, folder: Path) -> None:
    script = (
        "import sys\n"
        "from importlib.metadata import distribution\n"
        "from vllm.plugins import load_general_plugins\n"
        "load_general_plugins()\n"
        "groups = {p.group for p in distribution('brimful').entry_points}\n"
        f"print(groups, [m for m in {PACKAGES} if m in sys.modules])\n"
    )
    told = finish([str(installed / "python"), "-c", script], folder)
    assert told.splitlines()[-1] == "{'console_scripts'} []"


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_every_command_helps_in_80_columns(
    command: tuple[str, ...], installed: Path, folder: Path
) -> None:
    text = finish([str(installed / "brimful"), *command, "--help"], folder)
    assert text.startswith("usage: brimful")
    assert max(map(len, text.splitlines())) <= 80
