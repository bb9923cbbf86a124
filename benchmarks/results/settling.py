"""When something that was disturbed is as it should be again; every definition stands here once."""

from collections.abc import Sequence

import numpy as np

from simulator.workloads.lengths import Floats

WINDOW, ALLOWED = 40, 2  # of so many steps, so many may be late: 5%, where p99 allows 1%
NEAR = 0.05  # of the settled value
CAPS_AVERAGED = 4  # 2 s of them, at two a second


def steps_until_in_time(late: Floats) -> int:
    """After how many steps no window of ``WINDOW`` has more than ``ALLOWED`` late ones any more.

    Counted to the last late step of the last such window; 0 where there is none.

    Args:
        late: 1 for a step that broke the SLA, 0 for one that did not.
    """
    if len(late) < WINDOW:
        return 0
    bad = np.flatnonzero(np.convolve(late, np.ones(WINDOW), "valid") > ALLOWED)
    if not len(bad):
        return 0
    return int(np.flatnonzero(late[: bad[-1] + WINDOW])[-1]) + 1


def steps_until_near(error: Floats, limit: float, window: int, within: int) -> int:
    """After how many steps the mean error over the last ``window`` stays at ``limit`` or below.

    Looked for up to ``within`` steps; ``window`` at least.
    """
    rolling = np.convolve(error[:within], np.full(window, 1 / window), "valid")
    above = np.flatnonzero(rolling > limit)
    return int(above[-1]) + 1 + window if len(above) else window


def seconds_until_settled(caps: Sequence[tuple[float, int]]) -> float:
    """The time from which on the mean of the last ``CAPS_AVERAGED`` caps is near the settled one.

    Near: within ``NEAR``. Settled: the median over the last third.

    Args:
        caps: seconds, and the cap published then.
    """
    at_s, cap = np.array(caps, dtype=float).T
    settled = float(np.median(cap[-(len(cap) // 3) :]))
    smooth = np.convolve(cap, np.full(CAPS_AVERAGED, 1 / CAPS_AVERAGED), "valid")
    off = np.flatnonzero(np.abs(smooth - settled) > NEAR * settled)
    return float(at_s[min(off[-1] + CAPS_AVERAGED, len(at_s) - 1)]) if len(off) else 0.0
