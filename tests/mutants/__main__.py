"""How many small changes of the controller the fast tests notice: ``make mutants``.

Every survivor is listed in ``.cache/mutants/survivors.txt``. Those that change nothing which could
be seen are in ``equivalent.toml`` with the reason, and are not counted.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tests.mutants.mutations import Mutant, mutants_of
from tests.mutants.run import is_killed, preload

ROOT = Path(__file__).parents[2]
OUT = ROOT / ".cache" / "mutants"
TARGET = 0.85
MOST_S = 3.0  # CPU time of the tests of one mutant
LEFT_OUT = ("__init__.py", "actor.py")  # of the controller: nothing, and what needs Ray
FILES = [
    *sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "controller").rglob("*.py")
        if path.name not in LEFT_OUT
    ),
    "replicas/engine/governor.py",
    "replicas/engine/limiter.py",
    "replicas/engine/queue_order.py",
]
Key = tuple[str, str, str]


def equivalents() -> dict[Key, str]:
    """Mutants that behave like the original, with the reason."""
    entries = tomllib.loads((Path(__file__).parent / "equivalent.toml").read_text())
    return {
        (e["file"], e["before"], after): e["why"]
        for e in entries.get("equivalent", [])
        for after in ([e["after"]] if isinstance(e["after"], str) else e["after"])
    }


class Cover:
    """Which tests may notice a mutant."""

    def __init__(self) -> None:
        found = OUT / f"cover-{_fingerprint()}.json"
        if not found.exists():
            made = OUT / "cover.json"
            command = [sys.executable, "-m", "tests.mutants.cover", str(made), *FILES]
            if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode:
                raise SystemExit("the fast tests fail as they are: run make test-fast first")
            made.rename(found)
        data = json.loads(found.read_text())
        self._took_s: dict[str, float] = data["took_s"]
        self._lines: dict[str, dict[int, list[str]]] = {
            file: {int(line): tests for line, tests in lines.items()}
            for file, lines in data["lines"].items()
        }

    def tests(self, mutant: Mutant) -> list[str]:
        """Ids of the tests that run its lines, else its function's, else the module's.

        What runs as the module is imported may matter to every test of the module. The cheapest
        come first, up to ``MOST_S``.
        """
        lines = self._lines[mutant.file]
        everywhere = 1, max(lines, default=0)
        ranges = [(mutant.line, mutant.last_line), mutant.function, everywhere]
        if mutant.function is None:
            ranges = [everywhere]
        runs: Counter[str] = Counter()
        for first, last in filter(None, ranges):
            runs.update(test for n in range(first, last + 1) for test in lines.get(n, ()))
            if runs:
                break
        chosen: list[str] = []
        took_s = 0.0
        for test in sorted(runs, key=lambda t: self._took_s[t]):
            took_s += self._took_s[test]
            if chosen and took_s > MOST_S:
                break
            chosen.append(test)
        return chosen


def _fingerprint() -> str:
    """A digest of every source and test: coverage is measured once for each state."""
    digest = hashlib.sha256()
    for room in ("controller", "replicas", "serve_app", "simulator", "benchmarks", "tests"):
        for path in sorted((ROOT / room).rglob("*.py")):
            digest.update(path.as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sample", type=int, help="so many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (%(default)s)")
    parser.add_argument("files", nargs="*", default=FILES, help="default: all")
    args = parser.parse_args(argv)
    for file in args.files:
        if file not in FILES:
            parser.error(f"{file}: is not mutated; allowed: {', '.join(FILES)}")
    OUT.mkdir(parents=True, exist_ok=True)
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # forks have no threads
    os.chdir(ROOT)

    start_s = time.monotonic()
    cover, known = Cover(), equivalents()
    mutants = [mutant for file in args.files for mutant in mutants_of(ROOT / file, ROOT)]
    for key in known.keys() - {mutant.key for mutant in mutants}:
        if key[0] in args.files:
            print("equivalent.toml: no such mutant:", *key, sep="\n  ")
    if args.sample is not None and args.sample < len(mutants):
        mutants = random.Random(args.seed).sample(mutants, args.sample)
    preload()
    killed: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    skipped = 0
    with (OUT / "survivors.txt").open("w") as survivors:
        for mutant in tqdm(mutants, mininterval=5):
            if mutant.key in known:
                skipped += 1
                continue
            total[mutant.file] += 1
            tests = cover.tests(mutant)
            if tests and is_killed(mutant, tests):
                killed[mutant.file] += 1
                continue
            what = "" if tests else "   (no test runs it)"
            print(
                f"{mutant.file}:{mutant.line}{what}\n  - {mutant.before}\n  + {mutant.after}",
                file=survivors,
                flush=True,
            )
    rows: list[dict[str, Any]] = []

    def row(id_: str, value: float, unit: str, target: float | None = None) -> None:
        rows.append({"id": id_, "value": round(value, 4), "unit": unit, "target": target})
        print(f"{id_:44} {value:9.3f} {unit}" + (f"   (target {target:g})" if target else ""))

    for file in total:
        row(f"killed:{file}", killed[file] / total[file], "share")
    row("killed", sum(killed.values()) / max(sum(total.values()), 1), "share", TARGET)
    row("mutants", sum(total.values()), "mutants")
    row("equivalent", skipped, "mutants")
    row("took", time.monotonic() - start_s, "s")
    print(json.dumps({"bench": "mutants", "rows": rows}))


if __name__ == "__main__":
    main()
