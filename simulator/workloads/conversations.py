"""Conversations of agents: consecutive turns, on a growing context.

A turn's prompt is the one before it, its answer, and the tool's result. It arrives when that answer
has ended and the tool has run, so the replay decides its time (a closed loop). No public trace has
turns with pauses. The defaults are made up around reports on coding agents: 43 turns in the median,
over 96% of prompt tokens found in the prefix cache, 86% of the next requests within a second
(vLLM's issue 57103).
"""

import math
from dataclasses import dataclass

import numpy as np

from controller.errors import ConfigError
from replicas.engine.prefixes import PREFIX_TOKENS
from simulator.workloads.lengths import LogNormal
from simulator.workloads.requests import Request

SYSTEM_TOKENS = 4 * PREFIX_TOKENS  # instructions and tools, common to all conversations
TASK = LogNormal(1_000, 1.0)  # tokens of the person's task
TURNS_CV, TOOL_CV, OUTPUT_CV = 0.5, 1.5, 1.0
PAUSE_SIGMA = 0.85  # of the pause's logarithm: with a median of 0.4 s, 86% are within a second
MOST_TURNS, MOST_CONTEXT = 1_000, 31_000  # a turn with a longer context is not sent
MOST_PAUSE_S = 3_600.0
DEFAULTS = (43.0, 400.0, 100.0, 0.4)
FORM = (
    "TURNS,TOOL,OUT,PAUSE_S: the median number of turns, mean tokens of a tool's result and of an"
    f" answer, the median pause; up to {MOST_TURNS}, {MOST_CONTEXT}, {MOST_CONTEXT}"
    f" and {MOST_PAUSE_S:g}, from 1 each, the pause from 0.001"
)


@dataclass(frozen=True, slots=True)
class Agents:
    """Conversations with lognormal turns, results, answers and pauses.

    turns: median number.
    tool_tokens, output_tokens: means of a tool's result and of an answer.
    pause_s: median time from the end of an answer to the next turn.
    """

    turns: float
    tool_tokens: float
    output_tokens: float
    pause_s: float

    def draw(self, n: int, rng: np.random.Generator) -> list[Request]:
        """The first turns of n conversations, all at time 0."""
        return [self._conversation(number, rng) for number in range(n)]

    def _conversation(self, number: int, rng: np.random.Generator) -> Request:
        mean = self.turns * math.sqrt(1 + TURNS_CV**2)  # of the lognormal with this median
        turns = int(LogNormal(mean, TURNS_CV, MOST_TURNS).lengths(rng.random(1))[0])
        results = LogNormal(self.tool_tokens, TOOL_CV).lengths(rng.random(turns))
        results[0] = SYSTEM_TOKENS + TASK.lengths(rng.random(1))[0]
        outputs = LogNormal(self.output_tokens, OUTPUT_CV).lengths(rng.random(turns))
        pauses_s = rng.lognormal(math.log(self.pause_s), PAUSE_SIGMA, turns)
        ends = np.cumsum(results + outputs)  # tokens of the context after each turn
        asked = max(int(np.searchsorted(ends, MOST_CONTEXT, side="right")), 1)
        prefix = tuple(f"system-{k}" for k in range(SYSTEM_TOKENS // PREFIX_TOKENS))
        first, *then = [
            Request(
                float(pauses_s[k]) if k else 0.0,
                int(ends[k] - outputs[k]),
                int(outputs[k]),
                prefix=prefix,
                conversation=number,
            )
            for k in range(min(turns, asked))
        ]
        return Request(
            0.0, first.input_tokens, first.output_tokens, prefix=prefix, conversation=number,
            then=tuple(then),
        )  # fmt: skip


def parse_agents(spec: str, numbers: str) -> Agents:
    """``agents`` or ``agents:TURNS,TOOL,OUT,PAUSE_S``.

    Raises:
        ConfigError: naming the spec and what is allowed.
    """
    try:
        values = tuple(float(part) for part in numbers.split(",")) if numbers else DEFAULTS
    except ValueError:
        values = ()
    most = (MOST_TURNS, MOST_CONTEXT, MOST_CONTEXT, MOST_PAUSE_S)
    least = (1, 1, 1, 0.001)
    if len(values) != len(most) or not all(
        low <= value <= high for low, value, high in zip(least, values, most, strict=True)
    ):
        raise ConfigError([f"workload: {spec!r} is not allowed: agents:{FORM}"])
    return Agents(*values)
