"""What prompts wait for, and how many tokens they hold up, where they are computed in chunks.

Steps with prompt tokens take s: s0 for the decodes, m more because there is a prompt, and
c3 P for the P prompt tokens that fit. A prompt of l tokens needs l / P steps where the next one
fills up its last step, and ceil(l / P) where it is alone, of which the last one is shorter. The
first is so with probability rho, the share of time in which prompts are computed; the second else.
P ends where CUDA graphs end, until s is as long as the launch of a step beyond them.

The mean time to first token is

    W = (rho s + (1 - rho) s0) / 2 + E[own time of a prompt] + Q

with half a step to begin with, and Q the wait for the prompts before it (Pollaczek and Khinchine
1930) in a queue that has been served at this rate for H seconds (Kimber and Hollis 1979):

    Q = H/4 (rho - 1 + sqrt((rho - 1)^2 + 4 (1 + CV^2) rho S / H)),   S = E[l / P] s,

which is (1 + CV^2) rho S / 2 (1 - rho) for small rho, and H (rho - 1) / 2 where more comes than is
served.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts as they come to one engine.

    Args:
        tokens: their lengths, shape (n,), each as likely.
        per_s: prompts/s that are to be served.
        token_s, mixed_s: c3 and m, seconds.
        decodes_s: s0 of the mean batch, seconds.
        graph_s: c3 P where CUDA graphs end; infinite: nowhere.
        eager_s: what a step beyond them takes at least.
    """

    tokens: Floats
    per_s: float
    token_s: float
    mixed_s: float
    decodes_s: float
    graph_s: float = math.inf
    eager_s: float = 0.0

    def planned_s(self, step_s: Floats) -> Floats:
        """What steps that may take s are predicted to take: less where graphs end before it."""
        return _Steps(self, step_s).step_s

    def wait_s(self, step_s: Floats, horizon_s: float) -> Floats:
        """W by s, shape (k,) both."""
        by = _Steps(self, step_s)
        spread = float((self.tokens**2).mean() / self.tokens.mean() ** 2)  # 1 + CV^2
        over = by.load(self.per_s) - 1
        root = np.sqrt(over**2 + 4 * spread * (over + 1) * by.served_s / horizon_s)
        rho = by.rho(self.per_s)
        begin_s = (rho * by.step_s + (1 - rho) * self.decodes_s) / 2
        wait_s: Floats = begin_s + by.own_s + horizon_s / 4 * (over + root)
        return wait_s

    def late_share(self, step_s: Floats, per_s: float, late: Callable[[Floats], Floats]) -> Floats:
        """The share of tokens that come late in steps with prompt tokens, by s; shape (k,).

        Args:
            per_s: prompts/s that come, be they served or not.
            late: by how long steps are predicted to take, the share of their tokens that is late
                because of the prompts; of any shape.
        """
        by = _Steps(self, step_s)
        rho, full = by.rho(per_s), late(by.step_s)
        last = (by.steps - 1).mean(axis=0) * full + late(by.last_s).mean(axis=0)
        late_steps = rho * by.fluid.mean(axis=0) * full + (1 - rho) * last
        steps = rho * by.fluid.mean(axis=0) + (1 - rho) * by.steps.mean(axis=0)
        busy = per_s * (rho * by.served_s + (1 - rho) * by.own_s)
        alone_per_s = np.maximum(1 - busy, 0.0) / self.decodes_s
        each = per_s / np.maximum(busy, 1.0)
        share: Floats = each * late_steps / (each * steps + alone_per_s)
        return share


class _Steps:
    """A prompt's steps: ``fluid`` l / P, ``steps`` ceil(l / P), ``last_s`` the last of them.

    ``step_s`` is what the others take: less than the target where graphs end before it.
    """

    def __init__(self, prompts: Prompts, step_s: Floats) -> None:
        alone_s = prompts.decodes_s + prompts.mixed_s
        graph_s, eager_s = max(prompts.graph_s, 1e-9), prompts.eager_s
        room_s = np.maximum(step_s - alone_s, 1e-9)
        room_s = np.where(step_s < eager_s, np.minimum(room_s, graph_s), room_s)
        self.step_s: Floats = alone_s + room_s
        work_s = prompts.token_s * prompts.tokens
        self.fluid: Floats = work_s[:, None] / room_s
        self.steps: Floats = np.ceil(self.fluid - 1e-9)
        last_s = work_s[:, None] - (self.steps - 1) * room_s
        least_s = np.where(last_s > graph_s, eager_s, 0.0)
        self.last_s: Floats = np.maximum(alone_s + last_s, least_s)
        self.own_s: Floats = ((self.steps - 1) * self.step_s + self.last_s).mean(axis=0)
        self.served_s: Floats = self.fluid.mean(axis=0) * self.step_s

    def load(self, per_s: float) -> Floats:
        """Work that comes over work that is done; above 1 the queue grows."""
        load: Floats = per_s * self.served_s
        return load

    def rho(self, per_s: float) -> Floats:
        """The share of time in which prompts are computed."""
        return np.minimum(self.load(per_s), 1.0)
