"""What the demo asks for: streams under way while long prompts come in."""

import random
from dataclasses import dataclass

from benchmarks.live.calibrate import PROMPT_TOKENS, StepTimes
from benchmarks.live.load import Ask

STREAM_PROMPT, STREAM_TOKENS = 64, 200  # tokens in and out
STREAMS = 8  # under way on each replica, about
GAP_STEPS = 6.0  # a client sees a token every so many calibrated steps, about
LONG_TOKENS = 16  # out
BURST = 4  # long prompts for each replica at once: vLLM takes them into one step
# Where a long prompt takes more than so many steps of decodes, prompts are shorter, and take fewer:
# with the same share of the time in fewer, longer stalls under 1% of all gaps had one.
LONGEST_STEPS, SHORTER_STEPS = 20.0, 10.0
PREFILL_FRAC = 0.24  # of an engine's time, if nothing else slowed it
WORDS = (3, 500)  # token ids of the tiny model that are words


@dataclass(frozen=True, slots=True)
class Load:
    """The same requests for each phase: their lengths, contents and times are of the seed.

    Args:
        streams, long_prompts: how many of each; they are mixed in ``asks``.
        prompt_tokens: of a long one.
    """

    asks: tuple[Ask, ...]
    streams: int
    long_prompts: int
    prompt_tokens: int


def make_load(times: StepTimes, replicas: int, seconds: float, seed: int = 1) -> Load:
    """Requests for ``seconds``, as many as these engines can serve on this machine."""
    rng = random.Random(seed)

    def prompt(tokens: int) -> list[int]:
        return [rng.randint(*WORDS) for _ in range(tokens)]

    stream_s = STREAM_TOKENS * GAP_STEPS * times.decode_s
    every_s = stream_s / (STREAMS * replicas)
    streams = [
        Ask(prompt(STREAM_PROMPT), STREAM_TOKENS, at_s=(i + rng.random()) * every_s)
        for i in range(max(round(seconds / every_s), 1))
    ]
    prompt_s = times.prompt_s
    if prompt_s > LONGEST_STEPS * times.decode_s:
        prompt_s = SHORTER_STEPS * times.decode_s
    prompt_tokens = max(round(PROMPT_TOKENS * prompt_s / times.prompt_s), STREAM_PROMPT)
    between_s = BURST * prompt_s / PREFILL_FRAC
    long_prompts = [
        Ask(prompt(prompt_tokens), LONG_TOKENS, at_s=i * between_s)
        for i in range(1, max(round(seconds / between_s), 2))
        for _ in range(BURST * replicas)
    ]
    asks = sorted([*streams, *long_prompts], key=lambda ask: ask.at_s)
    return Load(tuple(asks), len(streams), len(long_prompts), prompt_tokens)
