"""The demo's load: open streams while long prompts arrive."""

import random
from dataclasses import dataclass

from serve_app.demo.calibrate import StepTimes, random_prompt
from serve_app.demo.client import Ask
from serve_app.demo.model import DemoModel, Shape

LOAD_FRAC = 0.7  # of the load that fills the engines' steps up to the SLA


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
