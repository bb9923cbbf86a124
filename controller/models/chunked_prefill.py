"""The wait for a first token, and the tokens delayed, if prompts are computed in chunks.

Steps with prompt tokens take s: s0 for the decodes, m for having a prompt at all, and c3 P for the
P prompt tokens that fit. A prompt of l tokens takes l / P steps if the next prompt fills up its
last step. If it is alone it takes ceil(l / P) steps, the last of which is shorter. The first case
has probability min(rho, 1), the share of time in which prompts are computed; rho is the
utilization, prompts/s times S. P is bounded by the CUDA graphs, until s is as long as the launch of
a larger step.

The mean time to first token is

    W = (rho s + (1 - rho) s0) / 2 + E[service time of the prompt alone] + Q

with half a step to begin with, in which rho is at most 1, and Q the wait for earlier prompts
(Pollaczek and Khinchine 1930) in a queue that has been served at this rate for H seconds (Kimber
and Hollis 1979):

    Q = H/4 (rho - 1 + sqrt((rho - 1)^2 + 4 (1 + CV^2) rho S / H)),   S = E[l / P] s,

which is (1 + CV^2) rho S / 2 (1 - rho) for small rho, and H (rho - 1) / 2 in overload.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from controller.models.arrays import Floats


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of one engine.

    Args:
        tokens: their lengths, shape (n,).
        shares: share of prompts of each length, shape (n,); they add up to 1.
        per_s: prompts/s to serve.
        token_s, mixed_s: c3 and m, seconds.
        decodes_s: s0 of the mean batch, seconds.
        graph_s: c3 P at the end of the CUDA graphs; infinite: no end.
        eager_s: least time of a larger step.
        tiles: prompt tokens of a step that ends with each tile, ascending, and its time; if empty,
            it grows by c3 a token.
    """

    tokens: Floats
    shares: Floats
    per_s: float
    token_s: float
    mixed_s: float
    decodes_s: float
    graph_s: float = math.inf
    eager_s: float = 0.0
    tiles: tuple[Floats, Floats] = (np.zeros(0), np.zeros(0))

    @property
    def mean_tokens(self) -> float:
        """The mean length of a prompt, tokens."""
        return float(self.mean(self.tokens))

    def mean(self, by_prompt: Floats) -> Any:
        """Mean over the prompts; shape (n,) or (n, k)."""
        return self.shares @ by_prompt

    def steps(self, step_s: Floats) -> "Steps":
        """Their steps for each s; shape (k,)."""
        return Steps(self, step_s)


class Steps:
    """A prompt's steps for each s, shape (k,), or (n, k) by prompt as well.

    Attributes:
        step_s: predicted time of steps that may take s: less if the graphs end earlier.
        fractional, count: l / P, a fractional number of steps, and ceil(l / P).
        last_s: time of the last of ``count`` steps.
        own_s, served_s: the mean total time of a prompt's steps if it is alone, and S.
    """

    def __init__(self, prompts: Prompts, step_s: Floats) -> None:
        self._prompts = prompts
        alone_s = prompts.decodes_s + prompts.mixed_s
        graph_s, eager_s = max(prompts.graph_s, 1e-9), prompts.eager_s
        room_s = np.maximum(step_s - alone_s, 1e-9)
        took_s = alone_s + room_s
        tokens, each_s = prompts.tiles
        if len(tokens):
            # The last tile before the first one that takes longer than s.
            last = np.searchsorted(np.maximum.accumulate(each_s), step_s, "right") - 1
            known = (last >= 0) & (last < len(tokens) - 1)
            room_s = np.where(known, prompts.token_s * tokens[last], room_s)
            took_s = np.where(known, each_s[last], took_s)
        if eager_s:
            ends = (step_s < eager_s) & (room_s > graph_s)
            room_s, took_s = (
                np.where(ends, graph_s, room_s),
                np.where(ends, alone_s + graph_s, took_s),
            )
        self.step_s: Floats = took_s
        work_s = prompts.token_s * prompts.tokens[:, None]
        self.fractional: Floats = work_s / room_s
        self.count: Floats = np.ceil(self.fractional - 1e-9)
        before = self.count - 1
        last_s = work_s - before * room_s
        self.last_s: Floats = alone_s + last_s
        if eager_s:
            self.last_s = np.where(last_s > graph_s, np.maximum(self.last_s, eager_s), self.last_s)
        self._mean_fractional: Floats = prompts.mean(self.fractional)
        self._mean_before: Floats = prompts.mean(before)
        self.own_s: Floats = prompts.mean(before * self.step_s + self.last_s)
        self.served_s: Floats = self._mean_fractional * self.step_s

    def wait_s(self, horizon_s: float) -> Floats:
        """W."""
        prompts = self._prompts
        spread = float(prompts.mean(prompts.tokens**2)) / prompts.mean_tokens**2  # 1 + CV^2
        utilization = prompts.per_s * self.served_s  # above 1 the queue grows
        over, rho = utilization - 1, np.minimum(utilization, 1.0)
        root = np.sqrt(over**2 + 4 * spread * utilization * self.served_s / horizon_s)
        begin_s = (rho * self.step_s + (1 - rho) * prompts.decodes_s) / 2
        wait_s: Floats = begin_s + self.own_s + horizon_s / 4 * (over + root)
        return wait_s

    def late_share(self, per_s: float, late: Callable[[Floats], Floats]) -> Floats:
        """Late tokens in steps with prompt tokens, as a share of all tokens.

        Args:
            per_s: prompts/s that arrive.
            late: gives, for predicted step times of any shape, the share of tokens that is late
                because of the prompts.
        """
        rho, full = np.minimum(per_s * self.served_s, 1.0), late(self.step_s)
        last = self._mean_before * full + self._prompts.mean(late(self.last_s))
        late_steps = rho * self._mean_fractional * full + (1 - rho) * last
        steps = rho * self._mean_fractional + (1 - rho) * (self._mean_before + 1)
        busy = per_s * (rho * self.served_s + (1 - rho) * self.own_s)
        alone_per_s = np.maximum(1 - busy, 0.0) / self._prompts.decodes_s
        each = per_s / np.maximum(busy, 1.0)
        share: Floats = each * late_steps / (each * steps + alone_per_s)
        return share
