"""How long tokens take on this machine, at the client, while the whole stack runs, and the load for
it: streams under way while long prompts come in.

Medians: an SLA made of them is the same from run to run. The fastest steps of an engine by itself
say what no client gets if HTTP, routers and other engines share the cores.
"""

import asyncio
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from serve_app.demo.client import Answer, Ask, send
from serve_app.demo.model import DemoModel, Shape

FEW, MANY = 4, 12  # streams under way on each replica
LONG_PROMPTS = 6  # one after the other
ROUND_MS = 5.0
LOAD_FRAC = 0.7  # of the load that fills the engines' steps up to the SLA


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds at the client, control off.

    Args:
        few_s, many_s: median gap between tokens with ``FEW`` and ``MANY`` streams on each replica.
        prompt_token_s: what one prompt token adds to a step.
    """

    few_s: float
    many_s: float
    prompt_token_s: float

    @property
    def decode_s(self) -> float:
        """What one more stream adds to a step."""
        return max(self.many_s - self.few_s, 0.0) / (MANY - FEW)

    @property
    def empty_s(self) -> float:
        """What a step takes before its first stream."""
        return max(self.few_s - FEW * self.decode_s, 0.0)

    def long_prompt_s(self, model: DemoModel) -> float:
        """What a long prompt adds to a step."""
        return self.prompt_token_s * model.long_prompt.prompt_tokens

    def sla_ms(self, gaps: float) -> float:
        """An SLA of this many gaps of a lightly loaded stack, in whole steps of 5 ms."""
        return math.ceil(gaps * self.few_s * 1000 / ROUND_MS) * ROUND_MS

    def streams_per_s(self, sla_ms: float, model: DemoModel) -> float:
        """Streams a second, with their share of long prompts, that fill one replica's steps.

        With every step as long as the SLA D allows: 1 = c0 / D + rate (c1 out + c3 in), where a
        step takes c0 + c1 (streams) + c3 (prompt tokens).
        """
        stream, long_prompt = model.stream, model.long_prompt
        outs = stream.output_tokens + model.longs_per_stream * long_prompt.output_tokens
        ins = stream.prompt_tokens + model.longs_per_stream * long_prompt.prompt_tokens
        busy_s = self.decode_s * outs + self.prompt_token_s * ins
        return (1 - self.empty_s / (sla_ms / 1000)) / busy_s


def calibrate(base_url: str, model: DemoModel, replicas: int) -> StepTimes:
    """Time the deployed stack, control off; it is warm afterwards."""

    rng = random.Random(0)

    def answers(shape: Shape, count: int) -> list[Answer]:
        asks = [
            Ask(random_prompt(model, shape.prompt_tokens, rng.getrandbits(32)), shape.output_tokens)
            for _ in range(count)
        ]
        return asyncio.run(send(base_url, model.name, asks))

    answers(model.stream, replicas)  # the first requests after a start are slow
    few, many = (answers(model.stream, n * replicas) for n in (FEW, MANY))
    few_s, many_s = (_median([gap for a in found for gap in a.itl_s]) for found in (few, many))
    alone = Shape(model.long_prompt.prompt_tokens, 1)
    prompts = [a for _ in range(LONG_PROMPTS) for a in answers(alone, 1)]
    ttft_s = _median([a.ttft_s for a in prompts if a.ttft_s is not None])
    return StepTimes(few_s, many_s, max(ttft_s - few_s, 0.0) / alone.prompt_tokens)


def random_prompt(model: DemoModel, tokens: int, seed: int) -> list[int]:
    """Token ids that mean nothing."""
    rng = random.Random(seed)
    return [rng.randint(*model.token_ids) for _ in range(tokens)]


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.inf


@dataclass(frozen=True, slots=True)
class Load:
    """The same requests for each phase: the seed sets lengths, contents and times.

    Args:
        streams, long_prompts: how many of each; they are mixed in ``asks``.
    """

    asks: tuple[Ask, ...]
    streams: int
    long_prompts: int


def make_load(
    model: DemoModel,
    times: StepTimes,
    sla_ms: float,
    replicas: int,
    seconds: float,
    seed: int = 1,
) -> Load:
    """Requests for ``seconds``: ``LOAD_FRAC`` of what the SLA allows on this machine."""
    rng = random.Random(seed)

    def ask(shape: Shape, at_s: float) -> Ask:
        prompt = random_prompt(model, shape.prompt_tokens, seed=rng.getrandbits(32))
        return Ask(prompt, shape.output_tokens, at_s=at_s)

    per_s = LOAD_FRAC * times.streams_per_s(sla_ms, model) * replicas
    count = max(round(seconds * per_s), 1)
    streams = [ask(model.stream, (k + rng.random()) * seconds / count) for k in range(count)]
    at_once = model.burst * replicas
    bursts = max(round(seconds * per_s * model.longs_per_stream / at_once), 1)
    long_prompts = [
        ask(model.long_prompt, (k + 0.5) * seconds / bursts)
        for k in range(bursts)
        for _ in range(at_once)
    ]
    asks = sorted([*streams, *long_prompts], key=lambda one: one.at_s)
    return Load(tuple(asks), len(streams), len(long_prompts))
