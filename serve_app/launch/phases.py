"""Phases of a replica's start, from the lines of vLLM and of replicas in Ray's logs.

Only logs of this machine are read: on replicas of other nodes there is only Serve's status.
"""

import re
from collections.abc import Iterator
from pathlib import Path

LOGS = ("worker-*.err", "worker-*.out", "serve/replica_*.log")
# Lines of the logs in the order of a start, and the phase to print.
PHASES = (
    (re.compile(r"Starting to load model"), "weights: loading"),
    (re.compile(r"Loading weights took ([\d.]+) seconds"), "weights: read in {} s"),
    (re.compile(r"Model loading took .* ([\d.]+) seconds"), "weights: loaded in {} s"),
    (re.compile(r"Warming up model for the compilation"), "compile: under way"),
    (re.compile(r"Dynamo bytecode transform time: ([\d.]+) s"), "compile: traced in {} s"),
    (re.compile(r"torch\.compile took ([\d.]+) s in total"), "compile: done in {} s"),
    (re.compile(r"KV cache size: ([\d,]+) tokens"), "KV memory: {} tokens"),
    (re.compile(r"Graph capturing finished in ([\d.]+) secs"), "CUDA graphs: captured in {} s"),
    (re.compile(r"init engine \(.*?\) took ([\d.]+) s"), "warm-up: engine ready, {} s with it"),
    (re.compile(r"Replica started in ([\d.]+ s: .*)"), "replica: started in {}"),
)


# An exception in one of vLLM's own processes; Ray only sees that the process ended.
CAUSE = re.compile(r"^\((?:EngineCore|\w*Worker)\S* pid=\d+\) (?:ERROR .*?\] )?([\w.]+Error: .*)")


class Phases:
    """Reads lines since its creation; each phase is returned once, for the first replica.

    Args:
        logs: Ray's folder of the session.

    Attributes:
        logs: as given.
        causes: exceptions in vLLM's own processes, the earliest first.
    """

    def __init__(self, logs: Path) -> None:
        self.causes: list[str] = []
        self.logs = logs
        self._told: set[str] = set()
        self._read = {path: path.stat().st_size for path in self._files()}

    def new(self) -> Iterator[str]:
        """Phases that were reached since the last call."""
        for path in self._files():
            for line in self._lines(path):
                yield from self._phase(line)
                found = CAUSE.match(line)
                if found and found[1] not in self.causes:
                    self.causes.append(found[1])

    def _files(self) -> list[Path]:
        return sorted(path for pattern in LOGS for path in self.logs.glob(pattern))

    def _lines(self, path: Path) -> list[str]:
        """Whole lines that were added."""
        from_byte = self._read.get(path, 0)
        with path.open("rb") as log:
            log.seek(from_byte)
            whole = log.read().rpartition(b"\n")[0]
        self._read[path] = from_byte + len(whole)
        return whole.decode(errors="replace").splitlines()

    def _phase(self, line: str) -> Iterator[str]:
        for pattern, told in PHASES:
            found = pattern.search(line)
            if found and told not in self._told:
                self._told.add(told)
                yield told.format(*found.groups())
