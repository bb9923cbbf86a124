"""The least mean time to first token that chunked prefill can have while gaps stay within D.

While B requests decode, a step takes T = c0 + c1 B + c2 K + c3 P. With s0 = c0 + c1 B + c2 K of
it taken by decodes, a step within D has room for p = (D - s0) / c3 prompt tokens, so prompts are
computed at (D - s0) / D of full speed: one of P tokens takes S = D P / p = P c3 D / (D - s0).
As a server with load rho = q E[S] it makes a request wait, in the order of arrival,
W = rho E[S^2] / (2 E[S] (1 - rho)) (Pollaczek-Khinchine). Before that comes the rest of the step
that runs, s0/2 at least where one does.

``Bound.ttft_s`` is below that, since it holds for every policy on steps without noise:

- B is the least there can be: work needs 1/T steps/s with T = step(q T (E[out] - 1), q T E[in]) of
  an engine that never idles, and longer steps have more decodes each. S is convex in B.
- Prompts are served by shortest remaining time, which has the least mean of all orders, for the
  requests as they come and not for their law.
- The share of late tokens that is allowed buys long steps. One with B decodes costs B late tokens;
  a policy may take those where B ~ Poisson(mean B) is small. In a long step the whole queue of
  prompts vanishes, at the best times for it (``benchmarks.disturbed.prompt_queue``).
- Disturbances count by their mean: pauses as their time per step, slow phases by the speed that is
  left, mixed steps as part of s0, encoders as their time per request, recorded steps by their time
  over the predicted one. Noise has mean 1; under it this is a mark and no bound, since a step
  that is planned longer than D may yet end in time.

No policy is bound by it that has more late tokens than allowed. Measured tables of step times are
taken to grow with each feature, as they do but for their own noise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.disturbed.prompt_queue import Prompt, least_mean_s
from replicas.profiles.disturbances import Disturbances
from replicas.profiles.profile import StepProfile
from simulator.workloads.requests import LengthStats, Request

LONGEST_STEP_S, MOST_ROOM = 10.0, 1e6
TINY = 1e-9  # prompt tokens: a step has some
HALVINGS = 60


class MeanSteps:
    """Steps of a profile under the mean of disturbances.

    Attributes:
        image_s: what an encoder adds to a request's first step, on average.
    """

    def __init__(self, profile: StepProfile, disturbances: Disturbances) -> None:
        self._profile = profile
        self._mixed_s = disturbances.mixed_s
        self._pause_s = sum(pauses.share * pauses.mean_s for pauses in disturbances.pauses)
        self._speed = math.prod(1 - s.share + s.share / s.factor for s in disturbances.slow)
        self._recorded, self._usual = 1.0, 1.0  # time over prediction: of all steps, of most
        if profile.recording is not None:
            predicted_s, measured_s = profile.recording.predicted_s, profile.recording.measured_s
            self._recorded = float(measured_s.sum() / predicted_s.sum())
            self._usual = min(float(np.median(measured_s / predicted_s)), 1.0)
        encoder = disturbances.encoder
        self.image_s = encoder.share * encoder.duration_s if encoder else 0.0

    def mean_s(self, decodes: float, kv: float, prefill: float, context: float) -> float:
        """The mean time of a step, with all that may disturb it."""
        step_s = self._profile.step_s(decodes, kv, prefill, context) * self._recorded
        return (step_s + self._mixed_s * (prefill > 0)) / self._speed + self._pause_s

    def calm_s(self, decodes: float, kv: float, prefill: float, context: float) -> float:
        """The time that it takes when nothing happens."""
        step_s = self._profile.step_s(decodes, kv, prefill, context) * self._usual
        return step_s + self._mixed_s * (prefill > 0)


@dataclass(frozen=True, slots=True)
class Bound:
    """What chunking costs a load.

    Args:
        decodes, step_s: B and T.
        floor_s: s0, of a step with prompt tokens.
        room_tokens: p.
        load: rho.
        in_order_s: mean TTFT by Pollaczek-Khinchine in whole steps, no token late; infinite where
            rho >= 1.
        ttft_s: the bound.
    """

    decodes: float
    step_s: float
    floor_s: float
    room_tokens: float
    load: float
    in_order_s: float
    ttft_s: float


def ttft_bound(
    steps: MeanSteps,
    requests: Sequence[Request],
    stats: LengthStats,
    rate_per_s: float,
    itl_s: float,
    allowed: float,
) -> Bound:
    """The bound for these requests.

    Args:
        stats, rate_per_s: of the workload that they are a draw of.
        itl_s: D.
        allowed: share of the tokens after a first one that may be late.
    """

    def decoding(step_s: float) -> float:
        return rate_per_s * step_s * (stats.mean_output - 1)

    def keeps_up(step_s: float) -> bool:
        decodes, prefill = decoding(step_s), rate_per_s * step_s * stats.mean_input
        context = prefill * stats.mean_context
        return steps.mean_s(decodes, decodes * stats.mean_held, prefill, context) <= step_s

    step_s = first_where(keeps_up, LONGEST_STEP_S)
    decodes = decoding(step_s)
    kv = decodes * stats.mean_held
    room = first_where(
        lambda p: steps.calm_s(decodes, kv, p, p * stats.mean_context) > itl_s, MOST_ROOM
    )
    room_s = steps.mean_s(decodes, kv, room, room * stats.mean_context)

    def prompt(request: Request) -> Prompt:
        tokens = request.input_tokens
        count = math.ceil(tokens / room)
        part = tokens / count
        chunked_s = count * steps.mean_s(decodes, kv, part, part * tokens / 2)
        whole_s = steps.mean_s(decodes, kv, tokens, tokens * tokens / 2)
        return Prompt(request.arrival_s, room_s * tokens / room, max(chunked_s, whole_s), whole_s)

    prompts = [prompt(request) for request in requests]
    late_tokens = allowed * sum(max(request.output_tokens - 1, 0) for request in requests)
    clears = long_steps(decodes, len(prompts), late_tokens)
    busy = 1 - math.exp(-decodes)
    decodes_s = steps.mean_s(decodes, kv, 0, 0)
    before_s = busy * decodes_s / 2 + steps.image_s
    least_s = least_mean_s(prompts, clears, decodes_s)
    service_s = np.array([one.service_s for one in prompts])
    mean_s, load = float(service_s.mean()), rate_per_s * float(service_s.mean())
    wait_s = load * float((service_s**2).mean()) / mean_s / 2 / (1 - load) if load < 1 else math.inf
    return Bound(
        decodes,
        step_s,
        steps.calm_s(decodes, kv, TINY, 0),
        room,
        load,
        before_s + wait_s + float(np.mean([one.chunked_s for one in prompts])),
        before_s + least_s,
    )


def long_steps(mean_decodes: float, chances: int, late_tokens: float) -> int:
    """How many steps can be long, where each makes all its decodes late.

    The cheapest of so many draws from Poisson(``mean_decodes``), which end in this many late
    tokens together. Nothing is late in a step that nobody decodes in.
    """
    count, spent, chance = 0.0, 0.0, math.exp(-mean_decodes)
    for decodes in range(int(mean_decodes + 10 * math.sqrt(mean_decodes)) + 10):
        some = chances * chance
        if decodes and spent + some * decodes > late_tokens:
            return int(count + (late_tokens - spent) / decodes)
        count, spent = count + some, spent + some * decodes
        chance *= mean_decodes / (decodes + 1)
    return chances


def first_where(holds: Callable[[float], bool], top: float) -> float:
    """Where a test that fails below and holds above begins to hold, by halving."""
    low, high = 0.0, top
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
