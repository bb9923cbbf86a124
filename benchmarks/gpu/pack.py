"""An archive for a card without a network: vLLM, and what a PyTorch image lacks.

    python -m benchmarks.gpu.pack FOLDER

FOLDER gets ``vllm.tar.xz``, 46 MB, for ``benchmarks.gpu.on_card`` on a machine with Python 3.12 and
torch 2.11 (CUDA 13). vLLM's wheel has 250 MB: device code of other architectures becomes zeros, and
files that a dense model on that card never loads are left out.
"""

import argparse
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
VLLM, PYTHON = "0.25.1", "3.12"  # the last vLLM that was built for torch 2.11
PLATFORMS = (
    "manylinux2014_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux_2_31_x86_64",
    "any",
)
ARCHITECTURE = 90  # Hopper
ELF, PTX = 2, 1  # kinds of device code
MAGIC = 0xBA55ED50  # of a "fatbin": device code for several architectures
LEFT_OUT = (
    "vllm/vllm-rs",  # the frontend in Rust
    "vllm/vllm_flash_attn/_vllm_fa2_C*",  # FlashAttention 3 runs on Hopper
    "vllm/_moe_C*",
    "vllm/_flashmla*",
    "vllm/_qutlass*",
    "vllm/third_party/deep_gemm",
    "vllm/third_party/fmha_sm100",
    "xgrammar/lib",  # to link against
    "mistral_common/data",
    "pycountry/locales",
    "**/__pycache__",
)
# Modules that this project imports, and their names in vLLM 0.25.
MOVED = {
    "entrypoints/serve/engine/protocol": "entrypoints.openai.engine.protocol",
    "entrypoints/launchers/cli_args": "entrypoints.openai.cli_args",
    "entrypoints/serve/exception_handling/error_response": "entrypoints.serve.utils.error_response",
}
ERRORS = """

class VLLMClientError(Exception):
    pass


class GenerationError(Exception):
    pass


class GracefulHTTPError(Exception):
    def __init__(self, message, http_status):
        super().__init__(message)
        self.http_status = http_status
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        vllm = Path(temporary) / "vllm"
        _install(vllm, HERE / "requirements-vllm.txt", f"vllm=={VLLM}")
        debugged = [str(path) for path in vllm.glob("xgrammar/*.so")]  # 50 MB of symbols
        subprocess.run(["strip", "--strip-debug", *debugged], check=True)
        for library in vllm.glob("vllm/**/*.so"):
            library.write_bytes(pruned(library.read_bytes(), _sections(library), ARCHITECTURE))
        move(vllm / "vllm")
        _pack(vllm, args.folder / "vllm.tar.xz")


def _install(site: Path, requirements: Path, *more: str) -> None:
    """Wheels for the card's machine into a folder, without what never runs there."""
    options = [f"--platform={name}" for name in PLATFORMS]
    options += ["--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    wanted = [f"--target={site}", f"--requirement={requirements}", *more]
    subprocess.run([*pip, *options, *wanted], check=True)
    for pattern in LEFT_OUT:
        for path in list(site.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for script in site.glob("bin/*"):  # pip names its own Python
        script.write_text(re.sub(r"\A#!.*", "#!/usr/bin/env python3", script.read_text()))


def move(vllm: Path) -> None:
    """Give vLLM's package the modules and errors that came after 0.25."""
    for name, module in MOVED.items():
        path = vllm / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(f"from vllm.{module} import *\n")
    with (vllm / "exceptions.py").open("a") as file:
        file.write(ERRORS)


def _pack(site: Path, archive: Path) -> None:
    xz = {**os.environ, "XZ_OPT": "-T0"}
    subprocess.run(["tar", "-C", str(site), "-cJf", str(archive), "."], check=True, env=xz)
    print(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB", flush=True)


def _sections(library: Path) -> list[tuple[int, int]]:
    """Where its device code is: (offset, size) in the file."""
    output = subprocess.run(
        ["readelf", "-SW", str(library)], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split("]", 1)[1].split() for line in output.splitlines() if ".nv_fatbin" in line]
    return [(int(row[3], 16), int(row[4], 16)) for row in rows]


def pruned(library: bytes, sections: list[tuple[int, int]], architecture: int) -> bytes:
    """The library with zeros in the place of device code that this architecture does not run.

    PTX stays only if there is no code for the architecture itself.
    """
    left = bytearray(library)
    for offset, size in sections:
        for begin, end in _fatbins(library, offset, offset + size):
            entries = list(_entries(library, begin, end))
            own = any((kind, arch) == (ELF, architecture) for kind, arch, _, _ in entries)
            for kind, arch, first, last in entries:
                runs = (kind, arch) == (ELF, architecture) if own else kind == PTX
                if not runs:
                    left[first:last] = bytes(last - first)
    return bytes(left)


def _fatbins(library: bytes, at: int, end: int) -> Iterator[tuple[int, int]]:
    """Begin and end of the entries of each."""
    while at + 16 <= end:
        magic, _, header, size = struct.unpack_from("<IHHQ", library, at)
        if magic == MAGIC:
            yield at + header, at + header + size
            at += header + size
        else:
            at += 8  # between two of them is padding


def _entries(library: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Kind, architecture, begin and end of the code."""
    while at < end:
        kind, _, header, size = struct.unpack_from("<HHIQ", library, at)
        if not header + size:
            return  # padding
        (arch,) = struct.unpack_from("<I", library, at + 28)
        yield kind, arch, at + header, at + header + size
        at += header + size


if __name__ == "__main__":
    main()
