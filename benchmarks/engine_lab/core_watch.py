"""What else wanted an engine's core while it served."""

import subprocess
import time
from pathlib import Path

import psutil

from benchmarks.engine_lab.hog import begin


class CoreWatch:
    """Counts from the moment it is made; a hog begins then.

    Args:
        core: what engine and hog are pinned to.
        pid: of the engine, whose main thread computes.
    """

    def __init__(self, core: int, pid: int, hog: "subprocess.Popen[str] | None") -> None:
        self._core, self._schedstat = core, Path(f"/proc/{pid}/schedstat")
        self._hog = psutil.Process(hog.pid) if hog else None
        if hog:
            begin(hog)
        self._begin = self._counts()

    def shares(self) -> dict[str, float]:
        """Shares of the time since then, and that time.

        ``hog_frac``: the hog's. ``waited_frac``: the engine waited for its core, and not for the
        hog, which is taken to have run as often while the engine wanted to as at other times.
        ``stolen_frac``: the host under a virtual machine took the core away.
        """
        took_s, ran_s, waited_s, hog_s, stolen_s = (
            after - before for before, after in zip(self._begin, self._counts(), strict=True)
        )
        for_hog_s = hog_s * (ran_s + waited_s) / took_s
        return {
            "took_s": took_s,
            "hog_frac": hog_s / took_s,
            "waited_frac": (waited_s - for_hog_s) / took_s,
            "stolen_frac": stolen_s / took_s,
        }

    def _counts(self) -> tuple[float, float, float, float, float]:
        """Now; the engine's seconds on a core and in wait of one; the hog's; stolen ones."""
        ran_ns, waited_ns, _ = self._schedstat.read_text().split()
        hog = self._hog.cpu_times() if self._hog else None
        hog_s = hog.user + hog.system if hog else 0.0
        stolen_s = psutil.cpu_times(percpu=True)[self._core].steal
        return time.perf_counter(), int(ran_ns) / 1e9, int(waited_ns) / 1e9, hog_s, stolen_s
