"""vLLM for a card without a network: one archive, with device code for one architecture alone.

    python -m benchmarks.gpu.pack vllm-0.25.1-*.whl SITE ARCHIVE.tar.xz [--architecture 90]

SITE is a folder with what vLLM needs and the machine with the card has not (``pip install --target
SITE --no-deps ...``). A wheel of 250 MB comes to 32 MB, 60 with its dependencies: device code of
other architectures becomes zeros, and what a dense model on that card never loads is left out.
"""

import argparse
import shutil
import struct
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ELF, PTX = 2, 1  # kinds of device code
MAGIC = 0xBA55ED50  # of a "fatbin": device code for several architectures
LEFT_OUT = (
    "vllm/vllm-rs",  # the frontend in Rust
    "vllm/vllm_flash_attn/_vllm_fa2_C",  # FlashAttention 3 runs on Hopper
    "vllm/_moe_C",
    "vllm/_flashmla",
    "vllm/_qutlass",
    "vllm/third_party/deep_gemm/",
    "vllm/third_party/fmha_sm100/",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("site", type=Path)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--architecture", type=int, default=90)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        shutil.copytree(args.site, site, ignore=shutil.ignore_patterns("__pycache__", "bin"))
        with zipfile.ZipFile(args.wheel) as wheel:
            names = [n for n in wheel.namelist() if not n.startswith(LEFT_OUT)]
            wheel.extractall(site, names)
        for library in site.glob("vllm/**/*.so"):
            library.write_bytes(pruned(library.read_bytes(), _sections(library), args.architecture))
        subprocess.run(
            [
                "tar",
                "-C",
                folder,
                "-cf",
                str(args.archive),
                "--use-compress-program=xz -T0",
                "site",
            ],
            check=True,
        )
    print(f"{args.archive}: {args.archive.stat().st_size / 1e6:.0f} MB")


def _sections(library: Path) -> list[tuple[int, int]]:
    """Where its device code is: (offset, size) in the file."""
    told = subprocess.run(
        ["readelf", "-SW", str(library)], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split("]", 1)[1].split() for line in told.splitlines() if ".nv_fatbin" in line]
    return [(int(row[3], 16), int(row[4], 16)) for row in rows]


def pruned(library: bytes, sections: list[tuple[int, int]], architecture: int) -> bytes:
    """The library with zeros in the place of device code that this architecture does not run.

    PTX stays only where there is no code for the architecture itself.
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
    """Kind, architecture, and where the code begins and ends."""
    while at < end:
        kind, _, header, size = struct.unpack_from("<HHIQ", library, at)
        if not header + size:
            return  # padding
        (arch,) = struct.unpack_from("<I", library, at + 28)
        yield kind, arch, at + header, at + header + size
        at += header + size


if __name__ == "__main__":
    main()
