"""What an engine is asked for: streams and bursts of long prompts, seeded."""

import random

from simulator.workloads.requests import Request

STREAM = (64, 100)  # tokens in and out
LONG = (300, 16)
BURST = 2  # long prompts that come at once
STREAMS_PER_BURST = 2.25  # at 0.6 streams/s a burst every 3.75 s
LIGHT_PER_S, HEAVY_PER_S = 0.35, 1.2  # streams: what a core carries with ease, and cannot carry


def requests_of(rate_per_s: float, seconds: float, seed: int) -> tuple[Request, ...]:
    """Streams with Poisson arrivals at this rate, and bursts in proportion to it.

    At another rate, the same seed's streams come at the same times by a faster or slower clock.
    """
    rng = random.Random(seed)
    at_s, asked = rng.expovariate(1.0) / rate_per_s, []
    while at_s < seconds:
        asked.append(_request(at_s, STREAM))
        at_s += rng.expovariate(1.0) / rate_per_s
    every_s = STREAMS_PER_BURST / rate_per_s
    bursts = int(seconds / every_s)
    asked += [_request(k * every_s, LONG) for k in range(1, bursts + 1) for _ in range(BURST)]
    return tuple(sorted(asked, key=lambda request: request.arrival_s))


def requests_to_record(seconds: float) -> tuple[Request, ...]:
    """A light load, then one beyond the engine: a profile of the steps knows few and many decodes.

    Each takes half of the time.
    """
    light = requests_of(LIGHT_PER_S, seconds / 2, seed=0)
    heavy = requests_of(HEAVY_PER_S, seconds / 2, seed=0)
    later = (_request(seconds / 2 + r.arrival_s, (r.input_tokens, r.output_tokens)) for r in heavy)
    return (*light, *later)


def _request(at_s: float, shape: tuple[int, int]) -> Request:
    return Request(at_s, *shape, max_tokens=shape[1])
