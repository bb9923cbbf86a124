"""The raw figures of runs on a card: what each client saw, and every step."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.engine import Run
from benchmarks.live.served import Served
from replicas.engine.step_recorder import COLUMNS


class Kept:
    """Runs that are written in files of their own, ``runs-0.npz`` and on."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._files = 0
        self._runs: dict[str, NDArray[Any]] = {}

    def add(self, key: str, run: Run, rate_per_s: float) -> None:
        """A run under a name of its own."""
        served = run.served
        self._runs |= {
            f"{key}/about": np.array([rate_per_s, served.took_s, run.preemptions]),
            f"{key}/requests": np.stack(
                [served.arrival_s, served.first_s, served.last_s, served.tokens]
            ).astype(np.float32),
            f"{key}/gaps": np.stack([served.gap_s, served.gap_end_s]).astype(np.float32),
            f"{key}/gap_request": served.gap_request.astype(np.int32),
            f"{key}/own_us": np.array(run.own_us, dtype=np.float32),
            f"{key}/steps": np.array(
                [(*s.features, round(s.duration_s * 1e6)) for s in run.samples], dtype=np.int64
            ).reshape(-1, len(COLUMNS)),
        }

    def write(self) -> None:
        """Those since the last time."""
        np.savez(self._out / f"runs-{self._files}.npz", **self._runs)  # type: ignore[arg-type]
        self._runs = {}
        self._files += 1


def read(out: Path) -> dict[str, tuple[float, Served, NDArray[np.int64]]]:
    """Read the runs back: the rate, what clients saw, and the steps, by ``COLUMNS``."""
    found = {}
    for path in sorted(out.glob("runs-*.npz")):
        file = np.load(path)
        for key in dict.fromkeys(name.rsplit("/", 1)[0] for name in file.files):
            rate_per_s, took_s, _ = file[f"{key}/about"].tolist()
            arrival_s, first_s, last_s, tokens = file[f"{key}/requests"].astype(float)
            gap_s, gap_end_s = file[f"{key}/gaps"].astype(float)
            served = Served(
                arrival_s,
                first_s,
                last_s,
                tokens.astype(np.int64),
                gap_s,
                gap_end_s,
                file[f"{key}/gap_request"].astype(np.int64),
                took_s,
            )
            found[key] = rate_per_s, served, file[f"{key}/steps"]
    return found
