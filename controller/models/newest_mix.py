"""Lengths of what comes now, sooner than by the requests that ended. Pure; time comes in.

A request shows its prompt when it comes and its output when it ends, and of a new mix the short
ones end first: means over the last that ended follow late, and begin too low. So the prompts are
those that came last, and the mean output is

    E[o] = tokens that were decoded / requests that ended

of the same seconds, which is the mean where ends and tokens are in balance, and where outputs are
exponential at any time: each token ends its request with probability 1 / E[o].
"""

from collections import deque
from dataclasses import dataclass, field

from controller.models.lengths import LengthMoments, LengthRing

PROMPTS = 256  # of the fleet: a mean to 6% where lengths spread as far as they are
ENDS = 128  # a mean to 9%
LEAST_S = 2.0  # reports come twice a second


@dataclass(slots=True)
class NewestMix:
    """Of one fleet."""

    _prompts: LengthRing = field(default_factory=lambda: LengthRing(PROMPTS))
    _counted: dict[object, tuple[int, int]] = field(default_factory=dict)
    _decoded: deque[tuple[float, int, int]] = field(default_factory=deque)
    _tokens: int = 0
    _ends: int = 0

    def came(self, prompt_tokens: int) -> None:
        """A request came."""
        self._prompts.add(prompt_tokens, 0)

    def reported(self, engine: object, tokens: int, ended: int, now_s: float) -> None:
        """What an engine that decodes has counted since it started."""
        before = self._counted.get(engine)
        self._counted[engine] = tokens, ended
        if before is None or tokens < before[0] or ended < before[1]:
            return
        newest = now_s, tokens - before[0], ended - before[1]
        self._decoded.append(newest)
        self._tokens, self._ends = self._tokens + newest[1], self._ends + newest[2]
        while self._ends - self._decoded[0][2] >= ENDS and now_s - self._decoded[1][0] >= LEAST_S:
            _, some, few = self._decoded.popleft()
            self._tokens, self._ends = self._tokens - some, self._ends - few

    def forget(self, engine: object) -> None:
        """It decodes no more; what it counts meanwhile is left out."""
        self._counted.pop(engine, None)

    def corrected(self, ended: LengthMoments) -> LengthMoments:
        """The moments of requests that ended, moved to the means of what comes now.

        Their spread goes with the means; that of prompts is their own.
        """
        prompts = self._prompts.moments()
        if not ended.n or not ended.input or not ended.output or prompts.n < PROMPTS:
            return ended
        a = prompts.mean_input / ended.mean_input
        b = self._tokens / self._ends / ended.mean_output if self._ends >= ENDS else 1.0
        return LengthMoments(
            ended.n,
            round(ended.input * a),
            round(ended.output * b),
            round(prompts.input_sq / prompts.n * ended.n),
            round(ended.output_sq * b * b),
            round(ended.cross * a * b),
        )
