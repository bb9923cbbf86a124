"""``make install``, its last step: compile the packages that a replica imports, on all cores.

uv installs sources only. Each process of a replica imports five thousand modules, which takes three
times as long without bytecode; if Python may not write it (PYTHONDONTWRITEBYTECODE, a read-only
environment), every process of every start compiles them again. Only the standard library is
available at this point.
"""

import compileall
import re
import sysconfig
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

CHUNK = 50  # files handed to a process at a time
# Two thirds of all sources: we import none of these, or one file in a hundred.
SELDOM = re.compile(
    r"(?:.*/)?tests?/"
    r"|(?:numpy/(?:distutils|f2py)|openai/resources|pydantic/v1|pygments/lexers"
    r"|ray/(?:air|autoscaler|data|rllib|train|tune)|sympy/(?:combinatorics|physics|stats)"
    r"|torch/(?:_vendor|onnx|sparse|testing)|transformers/(?:cli|exporters|models/(?!auto/)\w+)"
    r"|vllm/(?:benchmarks|model_executor/models|models))/"
    r"|(?:_pytest|anthropic|coverage|cryptography|dns|fontTools|google/(?:api_core|auth)|hypothesis"
    r"|libcst|matplotlib|mcp|mpl_toolkits|mypy|mypyc|numba|pip|pyasn1_modules|sentry_sdk"
    r"|setuptools/_vendor|supervisor|textual|virtualenv)/"
)


def compile_packages(folder: Path | None = None) -> int:
    """Write the bytecode of the installed packages except ``SELDOM``; files up to date stay.

    A file that does not compile (a template, one for another Python) is skipped.

    Args:
        folder: of the packages; None: where this Python's are.

    Returns:
        Number of files that have bytecode now.
    """
    found = sources(folder or Path(sysconfig.get_path("purelib")))
    with ProcessPoolExecutor() as pool:
        return sum(pool.map(_compile, found, chunksize=CHUNK))


def sources(folder: Path) -> list[str]:
    """The files to compile."""
    return [
        str(path)
        for path in sorted(folder.rglob("*.py"))
        if not SELDOM.match(path.relative_to(folder).as_posix())
    ]


def _compile(path: str) -> bool:
    return bool(compileall.compile_file(path, quiet=2))
