"""``make install``: requirements.lock and this project into the environment that runs this file.

uv takes seconds where pip takes minutes, but does not read pip's configuration. So the indexes
and folders that pip is configured with are passed to it; if they have no CPU build of torch, uv
knows PyTorch's own index (``--torch-backend cpu``). Only the standard library is available at
this point.
"""

import ast
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.bytecode import compile_packages

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
UV = Path(sys.executable).parent / "uv"
SECTIONS = ("global", "install", ":env:")  # later ones win, as in pip
OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
}
VARIABLES = {
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",  # certificate and key in one file, as pip has it
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
TRUE = ("1", "true", "yes", "on", "y", "t")
TORCH_INDEX = ("--torch-backend", "cpu")
PACKAGE_LINES = (" + ", " - ", " ~ ")  # one for each of two hundred packages


class InstallError(Exception):
    """An installation failed; the message says of what, and what would help."""


def main() -> int:
    """Install, and report progress; 1 with one message if it cannot be done."""
    try:
        install()
    except InstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def install() -> None:
    """uv by pip, the lock by uv, this project from its folder, then the bytecode.

    Raises:
        InstallError: naming the step that failed.
    """
    _call(
        [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", pin(LOCK, "uv")],
        "pip could not install uv",
    )
    settings = pip_settings(pip_config_list(os.environ))
    env = uv_environment(settings, os.environ)
    sources = torch_sources(uv_options(settings), env)
    _uv([*sources, "--no-deps", "-r", str(LOCK)], env, "uv could not install requirements.lock")
    _uv(
        [*sources, "--no-deps", "--no-build-isolation", "-e", str(ROOT)],
        env,
        "uv could not install this project",
    )
    print(f"Bytecode of {compile_packages()} files", file=sys.stderr)


def pin(lock: Path, name: str) -> str:
    """The line of a lock file that pins a package.

    Raises:
        InstallError: there is none.
    """
    for line in lock.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}=="):
            return line
    raise InstallError(f"{lock.name} has no pin of {name}")


def pip_config_list(env: Mapping[str, str]) -> str:
    """The output of ``pip config list``, even if pip is configured to be quiet."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env={**env, "PIP_QUIET": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    return listed.stdout


def pip_settings(listed: str) -> dict[str, str]:
    """The settings of ``pip config list``, by option, from the section that wins in pip."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in listed.splitlines():
        place, _, value = line.partition("=")
        section, _, option = place.rpartition(".")
        if section in found:
            found[section][option] = str(ast.literal_eval(value))
    return {option: value for section in SECTIONS for option, value in found[section].items()}


def uv_options(settings: Mapping[str, str]) -> list[str]:
    """The indexes and folders of pip's settings as options of ``uv pip``."""
    options = [
        part
        for name, option in OPTIONS.items()
        for value in settings.get(name, "").split()
        for part in (option, value)
    ]
    if settings.get("no-index", "").lower() in TRUE:
        options.append("--no-index")
    if "--index" in options:
        # As pip does: a version is taken from any index, not only from the first one that knows
        # the name. All versions are pinned.
        options += ["--index-strategy", "unsafe-best-match"]
    return options


def uv_environment(settings: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """The environment of uv: the present one, with pip's certificates, proxy and timeout."""
    carried = {VARIABLES[name]: value for name, value in settings.items() if name in VARIABLES}
    if seconds := carried.get("UV_HTTP_TIMEOUT"):  # uv accepts only whole seconds
        carried["UV_HTTP_TIMEOUT"] = str(math.ceil(float(seconds)))
    return {**carried, **env}


def torch_sources(options: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The options by which uv finds the pinned CPU build of torch.

    The configured sources come first: to look there takes a fraction of a second, while PyTorch's
    index, if it is out of reach, is given up after about 10 s.

    Raises:
        InstallError: no index has it.
    """
    torch = pin(LOCK, "torch")
    told = []
    for sources in (list(options), [*options, *TORCH_INDEX]):
        tried = subprocess.run(
            [*_uv_command(), *sources, "--no-deps", "--dry-run", torch],
            env=dict(env),
            capture_output=True,
            text=True,
            check=False,
        )
        if tried.returncode == 0:
            return sources
        told.append(tried.stderr.strip())
    raise InstallError(
        f"{torch} was found neither in the sources that pip is configured with nor on PyTorch's"
        " own index. Name a source that has it to pip (PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS) and"
        " run make install again. What uv said of both:\n" + "\n".join(told)
    )


def _uv_command() -> list[str]:
    return [str(UV), "pip", "install", "--python", sys.executable]


def _uv(arguments: Sequence[str], env: Mapping[str, str], failure: str) -> None:
    """Run ``uv pip install`` and print its output, without the line of each package."""
    command = [*_uv_command(), *arguments]
    with subprocess.Popen(command, env=dict(env), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if not line.startswith(PACKAGE_LINES):
                print(line, end="", file=sys.stderr, flush=True)
    if process.returncode:
        raise InstallError(f"{failure} (its reason is above)")


def _call(command: Sequence[str], failure: str) -> None:
    if subprocess.run(command, check=False).returncode:
        raise InstallError(f"{failure} (its reason is above)")


if __name__ == "__main__":
    sys.exit(main())
