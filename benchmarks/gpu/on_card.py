"""A run on a bare machine with a card: unpack, check, and measure within the time.

    python3 -m benchmarks.gpu.on_card [ARCHIVE ...] --out OUT [-- OPTIONS]

Archives are those of ``benchmarks.gpu.pack``; earlier ones stay unpacked. OPTIONS go to
``benchmarks.gpu``. Each result is in OUT as soon as it is known, and all ends within the budget,
unpacking included. This module needs only the standard library.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(tempfile.gettempdir()) / "brimful-card"
CHECK_S = 60.0  # 10 to 30 on an idle machine
END_S = 20.0  # for a bench to stop its processes after its budget
CHECK = """
import benchmarks.gpu.engine
from benchmarks.gpu.card import describe
print(describe()["described"])
"""


def main() -> int:
    """Exit status of the bench; 2 if an archive or the check fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archives", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget-s", type=float, default=540.0)
    own, options = _parted(sys.argv[1:])
    args = parser.parse_args(own)
    until_s = time.monotonic() + args.budget_s
    SITE.mkdir(parents=True, exist_ok=True)
    environment = _environment()
    try:
        for archive in args.archives:
            tar = ["tar", "-C", str(SITE), "-xJf", str(archive)]
            subprocess.run(tar, check=True, timeout=max(until_s - time.monotonic(), 0.0))
        subprocess.run(
            [sys.executable, "-c", CHECK], env=environment, check=True, timeout=CHECK_S, cwd=ROOT
        )
    except subprocess.SubprocessError as error:
        print(f"error: this machine cannot run it: {error}", file=sys.stderr)
        return 2
    left_s = until_s - time.monotonic() - END_S
    print(f"unpacked and checked; {left_s:.0f} s to measure", flush=True)
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu",
        "--out",
        str(args.out),
        "--budget-s",
        f"{left_s:.0f}",
    ]
    try:
        return subprocess.run(
            command + options, env=environment, timeout=left_s + END_S, cwd=ROOT
        ).returncode
    except subprocess.TimeoutExpired:
        print("error: stopped at the end of its time", file=sys.stderr)
        return 1


def _parted(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Own arguments and the bench's."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def _environment() -> dict[str, str]:
    """This checkout and the archives first."""
    paths = [str(ROOT), str(SITE), os.environ.get("PYTHONPATH", "")]
    return {
        "HF_HUB_OFFLINE": "1",
        "TQDM_DISABLE": "1",
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


if __name__ == "__main__":
    sys.exit(main())
