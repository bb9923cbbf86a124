"""What the step-time target is chosen by, drawn: late tokens, TTFT and J by the chunk.

``python -m benchmarks.disturbed.curves docs/control.png``. Steps of the profile paper-fig3, 257/62
at 4 and 7 requests/s, D = 50 ms, noise of CV 10% and a pause of 40 ms on average in 5% of the
steps, as in the row cv10-pauses-5x40.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray

from controller.models.chunked_prefill import Prompts
from controller.models.demand import MEMORY_S
from replicas.profile_file import load_profile

Floats = NDArray[np.float64]

ITL_S, ALLOWED = 0.050, 0.01
INPUT, OUTPUT = 257, 62
RATES_PER_S = (4.0, 7.0)
DRAWN, SEED = 20_000, 0
CV, PAUSED, PAUSE_S = 0.10, 0.05, 0.040
CHUNKS = np.arange(8.0, 300.0)


def main(path: Path) -> None:
    """Draw them into ``path``."""
    profile = load_profile("paper-fig3")
    c0 = profile.step_s(0, 0, 0, 0)
    decode_s = profile.step_s(1, INPUT, 0, 0) - c0
    token_s = profile.step_s(0, 0, 1, 0) - c0
    ratios, pauses_s = _drawn()
    mpl.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(3, len(RATES_PER_S), figsize=(8.4, 7.2), sharex=True)
    for column, rate_per_s in zip(axes.T, RATES_PER_S, strict=True):
        busy = rate_per_s * (INPUT * token_s + OUTPUT * decode_s)
        decodes_s = c0 * (1 + rate_per_s * OUTPUT * decode_s / (1 - busy))
        prompts = Prompts(np.full(1, float(INPUT)), rate_per_s, token_s, 0.0, decodes_s)
        steps_s = np.asarray(decodes_s + token_s * CHUNKS)

        alone = float(_late(np.array([decodes_s]), ratios, pauses_s)[0])

        def late(predicted_s: Floats, alone: float = alone) -> Floats:
            return np.maximum(_late(predicted_s, ratios, pauses_s) - alone, 0.0)

        steps = prompts.steps(steps_s)
        share = alone + steps.late_share(rate_per_s, late)
        wait_s = steps.wait_s(MEMORY_S)
        j = np.maximum(share / ALLOWED, 1) * wait_s
        top, middle, bottom = column
        top.set_title(f"{rate_per_s:g} requests/s")
        top.plot(CHUNKS, 100 * _late(steps_s, ratios, pauses_s), label="p(P): steps with P tokens")
        top.plot(CHUNKS, 100 * share, label="L: all tokens")
        top.axhline(100 * alone, color="0.4", ls=":", label="p0: without prompts as well")
        top.axhline(100 * ALLOWED, color="0.7", ls="--", label="a: allowed")
        top.set_ylim(0.5, 110)
        middle.plot(CHUNKS, wait_s, color="C2")
        bottom.plot(CHUNKS, j, color="C3")
        best = int(np.argmin(j))
        bottom.plot(CHUNKS[best], j[best], "o", color="C3")
        for axis in column:
            axis.set_yscale("log")
        bottom.set_xlabel("P, prompt tokens in a step")
    axes[0][0].set_ylabel("late, %")
    axes[1][0].set_ylabel("W, mean TTFT, s")
    axes[2][0].set_ylabel("J = max(L/a, 1) W, s")
    axes[0][0].legend(frameon=False, fontsize=8, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _drawn() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(SEED)
    sigma = float(np.sqrt(np.log1p(CV**2)))
    ratios = rng.lognormal(-(sigma**2) / 2, sigma, DRAWN)
    pauses_s = rng.exponential(PAUSE_S, DRAWN) * (rng.random(DRAWN) < PAUSED)
    return ratios, pauses_s


def _late(predicted_s: Floats, ratios: Floats, pauses_s: Floats) -> Floats:
    """The share of steps that end after D, by what they were predicted to take."""
    flat = [float((one * ratios + pauses_s > ITL_S).mean()) for one in predicted_s.ravel()]
    return np.array(flat).reshape(predicted_s.shape)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
