"""How many engines of a fleet compute prompts for the others. Pure; time comes in.

An engine in the role ``prefill`` computes prompts with its whole token budget M, without an ITL,
and hands their KV over. One in the role ``mixed`` decodes under the ITL target D, with a chunk of
prompts. A request goes through a prefill engine, or direct to a mixed engine.
With c0..c4, m the step-time model, i and o the mean lengths, h the mean KV of a decode:

    prefill engine   R = M / (c0 + m + c M) tokens/s,  c = c3 + c4 i / 2
    a decode         d = (c1 + c2 h) o seconds of a mixed engine's steps
    a prompt there   p = c i seconds

x requests/s through n prefill engines and y/s direct are carried by N - n mixed ones if

    x i <= n R,   x i b <= W min(n, N - n)                   the pool, and the network cards
    x d + y (p + d) <= (N - n) (D - c0 - m) / D              steps take D at most
    x (g + d) + y (g + p + d) <= N - n,  g = o (c0 + m) / B  the batch is B at most

with b bytes of KV a token and W bytes/s of a card. A prompt costs less in the pool, whose steps
share c0 among M tokens. So x is as large as possible, and y takes the rest of the mixed engines.

With a TTFT T, x is also bounded so that prompts through the pool are in time:

    s = 1 / R + b / W                     seconds of a prompt token on its way, pool then card
    E[l] s + handover + Wp + Wc + Wd + z sqrt(Var[l] s^2 + Var[Wp] + Var[Wc] + Var[Wd]) <= T

The waits are those of M/G/k queues (Sakasegawa, 1977): 0 with probability 1 - pi, else exponential.
They are at n prefill engines, at min(n, N - n) cards, and for one of the decode slots in the steps
of N - n mixed engines, (D - c0 - m) / (c1 + c2 h) in each, B at most, held for o steps of D. z is
the quantile of an exponential, in standard deviations beyond its mean: 3.6 at 99%; lognormal
prompts of equal spread have 3.9.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from controller.capacity import out_of_reach, typical_itl_s
from controller.config import BatchingConfig, Sla
from controller.models.lengths import LengthMoments
from controller.models.step_time import StepModel

# Another number of prefill engines must carry this share more: lengths and steps are known to a few
# percent, and while roles change, batches empty and fill.
WORTH = 0.05
# Dwell: in half a minute a batch of short answers has emptied, and lengths are known again.
DWELL_S = 30.0
# Wait of a request between prefill and decode, in steps of D: half of one until its load begins,
# one to compute its first token.
HANDOVER_STEPS = 1.5
HALVINGS = 12  # bisection of the load of a pool: to 1/4096 of its rate
LEAST_ENDED = 100  # requests: the mean is known to 10% if the deviation equals it


@dataclass(frozen=True, slots=True)
class Transfer:
    """A KV transfer from one engine to another.

    Args:
        kv_bytes: KV of one token.
        bytes_per_s: of an engine's network card, in each direction.
        latency_s: of one transfer of any size.
    """

    kv_bytes: float
    bytes_per_s: float
    latency_s: float = 0.0

    def wire_s(self, tokens: float) -> float:
        """Seconds that ``tokens`` take on a card."""
        return tokens * self.kv_bytes / self.bytes_per_s

    def time_s(self, tokens: float) -> float:
        """Seconds of a transfer without a queue."""
        return self.latency_s + self.wire_s(tokens)

    def handover_s(self, itl_s: float) -> float:
        """Seconds of the handover without computing, queues and the card."""
        return self.latency_s + HANDOVER_STEPS * itl_s


@dataclass(frozen=True, slots=True)
class Fleet:
    """Identical engines.

    Args:
        engines: N, at least 1.
        most_running: requests of a batch, at most.
        budget: M, tokens of a step.
        kv_tokens: of KV memory; 0: the model has none.
    """

    engines: int
    most_running: int
    budget: int
    kv_tokens: int


@dataclass(frozen=True, slots=True)
class Split:
    """What a fleet carries with this number of prefill engines.

    Args:
        prefill: engines in that role.
        through_per_s, direct_per_s: x and y, requests/s.
    """

    prefill: int
    through_per_s: float
    direct_per_s: float

    @property
    def per_s(self) -> float:
        """Requests/s of the fleet."""
        return self.through_per_s + self.direct_per_s


def prefill_tokens_per_s(model: StepModel, budget: int, mean_prompt: float) -> float:
    """R of one prefill engine; infinite if a step costs nothing in the model."""
    step_s = model.c0 + model.mixed_s + _per_token_s(model, mean_prompt) * budget
    return budget / step_s if step_s > 0 else float("inf")


def _per_token_s(model: StepModel, mean_prompt: float) -> float:
    return model.c3 + model.c4 * mean_prompt / 2


def split_of(
    model: StepModel,
    lengths: LengthMoments,
    fleet: Fleet,
    transfer: Transfer,
    sla: Sla,
    prefill: int,
    *,
    direct: bool = True,
) -> Split:
    """What the fleet carries with ``prefill`` prefill engines, from 0 to N - 1.

    Args:
        lengths: of at least one request, with output.
        sla: it must have an ITL.
        direct: whether requests may go direct to mixed engines; otherwise all go through.
    """
    itl_s, mixed = sla.itl_s, fleet.engines - prefill
    assert itl_s is not None
    mean_in, mean_out = lengths.mean_input, lengths.mean_output
    if out_of_reach(model, itl_s) or mixed < 1:
        return Split(prefill, 0.0, 0.0)
    step_s, fixed_s = typical_itl_s(model, itl_s), model.c0 + model.mixed_s
    most = float(fleet.most_running)
    if fleet.kv_tokens and lengths.mean_held:
        most = min(most, fleet.kv_tokens / lengths.mean_held)
    decode_s = (model.c1 + model.c2 * lengths.mean_held) * mean_out
    prompt_s = _per_token_s(model, mean_in) * mean_in
    empty_s = mean_out * fixed_s / max(most, 1.0)
    left = [mixed * max(step_s - fixed_s, 0.0) / step_s, float(mixed)]
    through = [decode_s, empty_s + decode_s]
    x = 0.0
    if prefill:
        places = most
        if decode_s > 0:
            places = min(most, (step_s - fixed_s) * mean_out / decode_s)
        # With prompts, steps are as long as the ITL allows; those of decodes alone are shorter.
        alone_s = fixed_s + (model.c1 + model.c2 * lengths.mean_held) * places
        token_s = step_s if direct else min(step_s, alone_s)
        way = _Way(
            1 / prefill_tokens_per_s(model, fleet.budget, mean_in), prefill,
            transfer.wire_s(1), min(prefill, mixed), token_s, max(int(mixed * places), 1),
        )  # fmt: skip
        x = way.in_time_per_s(lengths, sla, transfer.handover_s(itl_s))
        x = min(x, *(room / max(each, 1e-12) for room, each in zip(left, through, strict=True)))
    if prefill and not direct:
        return Split(prefill, x, 0.0)
    y = min(
        max(room - x * each, 0.0) / max(each + prompt_s, 1e-12)
        for room, each in zip(left, through, strict=True)
    )
    found = Split(prefill, x, y)
    if not prefill:
        return found
    none_direct = split_of(model, lengths, fleet, transfer, sla, prefill, direct=False)
    return max(found, none_direct, key=lambda one: one.per_s)


@dataclass(frozen=True, slots=True)
class _Way:
    """Prefill engines, cards and decode slots, as queues in series.

    Args:
        compute_s, wire_s: seconds per prompt token, at one engine and on one card.
        engines, cards: numbers in parallel.
        step_s: seconds per token of the answer.
        places: decode slots.
    """

    compute_s: float
    engines: int
    wire_s: float
    cards: int
    step_s: float
    places: int

    def in_time_per_s(self, lengths: LengthMoments, sla: Sla, handover_s: float) -> float:
        """Requests/s for which the percentile of the TTFT is within the SLA.

        Without ``ttft_ms``, the least capacity of the queues.
        """
        most = min(1 / max(each_s / k, 1e-12) for each_s, _, k in self._queues(lengths))
        if sla.ttft_ms is None:
            return most
        low, high = 0.0, 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            late_s = self._tail_s(lengths, middle * most, sla.percentile) + handover_s
            low, high = (low, middle) if late_s > sla.ttft_ms / 1000 else (middle, high)
        return low * most

    def _queues(self, lengths: LengthMoments) -> tuple[tuple[float, float, int], ...]:
        """E[S], E[S^2] / 2 E[S] and the number of servers of each queue."""
        mean_in, mean_out = max(lengths.mean_input, 1e-9), lengths.mean_output
        prompt = lengths.input_sq / lengths.n / (2 * mean_in)
        answer = lengths.output_sq / lengths.n / (2 * mean_out)
        return (
            (self.compute_s * mean_in, self.compute_s * prompt, self.engines),
            (self.wire_s * mean_in, self.wire_s * prompt, self.cards),
            (self.step_s * mean_out, self.step_s * answer, self.places),
        )

    def _tail_s(self, lengths: LengthMoments, per_s: float, percentile: float) -> float:
        """The percentile of computing, transfer and all queues, seconds; below their capacity."""
        mean, of_squares = lengths.mean_input, lengths.input_sq / lengths.n
        token_s = self.compute_s + self.wire_s
        mean_s = mean * token_s
        variance = max(of_squares - mean**2, 0.0) * token_s**2
        for each_s, left_s, k in self._queues(lengths):
            load = per_s * each_s / k
            waits = load ** (math.sqrt(2 * (k + 1)) - 1)
            wait_s = waits / (k * (1 - load)) * left_s if waits else 0.0
            mean_s += wait_s
            variance += wait_s**2 * (2 / waits - 1) if waits else 0.0
        beyond = -math.log(1 - percentile / 100) - 1
        return mean_s + beyond * math.sqrt(variance)


def splits(
    model: StepModel,
    lengths: LengthMoments,
    fleet: Fleet,
    transfer: Transfer,
    sla: Sla,
    *,
    direct: bool = True,
) -> tuple[Split, ...]:
    """What the fleet carries with 0 to N - 1 prefill engines."""
    return tuple(
        split_of(model, lengths, fleet, transfer, sla, n, direct=direct)
        for n in range(fleet.engines)
    )


def best_of(found: Sequence[Split]) -> Split:
    """The split with most capacity; the fewest prefill engines within ``WORTH`` of the best."""
    most = max(one.per_s for one in found)
    return next(one for one in found if one.per_s >= most / (1 + WORTH))


class RoleChooser:
    """The number of prefill engines over time, with hysteresis and a least dwell.

    Attributes:
        prefill: number that is wanted now.
    """

    def __init__(self, dwell_s: float = DWELL_S) -> None:
        self._dwell_s = dwell_s
        self._changed_s = float("-inf")
        self._engines = 0
        self.prefill = 0

    def see(self, found: Sequence[Split], now_s: float) -> int:
        """The wanted number, given what each number would carry (from 0 on).

        If the number of engines changes, the dwell is cut short.
        """
        same, self._engines = len(found) == self._engines, len(found)
        if same and now_s < self._changed_s + self._dwell_s:
            return self.prefill
        best, now = best_of(found), found[min(self.prefill, len(found) - 1)]
        if best.prefill != self.prefill and best.per_s > now.per_s * (1 + WORTH):
            self.prefill, self._changed_s = best.prefill, now_s
        return self.prefill


@functools.lru_cache(maxsize=64)  # called with every report of such an engine
def as_prefill(batching: BatchingConfig) -> BatchingConfig:
    """The block of a prefill engine: without an ITL."""
    sla = batching.sla.model_copy(update={"itl_ms": None})
    return batching.model_copy(update={"sla": sla})


def keeps_itl(running: int, waiting: int, *, decodes: bool, without: bool) -> bool:
    """Whether an engine that is to become a prefill engine still keeps its ITL.

    It does while it decodes. Once as many requests wait as run, it gives the ITL up until none
    waits: with the ITL it computes half as many prompts, and waiting requests would be late until
    the last answer ends. That also ends its own late prompts, which are rarely served.

    Args:
        running: requests of either kind.
        waiting: those for others, and its own from before the change.
        decodes: whether it still answers some.
        without: whether it has given up its ITL.
    """
    return decodes and waiting < (1 if without else max(running, 1))
