"""How many engines of a fleet compute prompts for the others. Pure; time comes in.

An engine in the role ``prefill`` computes prompts under its whole token budget M, without an ITL,
and hands their KV over; one in the role ``mixed`` decodes under the ITL target D, with a chunk of
prompts beside. A request goes through a prefill engine, or is sent to a mixed engine as it is.
With c0..c4, m the step-time model, i and o the mean lengths, h the mean KV of a decode:

    prefill engine   R = M / (c0 + m + c M) tokens/s,  c = c3 + c4 i / 2
    a decode         d = (c1 + c2 h) o seconds of a mixed engine's steps
    a prompt there   p = c i seconds

x requests/s through n prefill engines and y/s direct are carried by N - n mixed ones if

    x i <= n R,   x i b <= W min(n, N - n)                   the pool, and the network cards
    x d + y (p + d) <= (N - n) (D - c0 - m) / D              steps take D at most
    x (g + d) + y (g + p + d) <= N - n,  g = o (c0 + m) / B  the batch is B at most

with b bytes of KV a token and W bytes/s of a card. A prompt costs less in the pool, where c0 is
shared by M tokens, so x is as large as may be, and y takes what is left of the mixed engines.

With a time to first token T, x is also held to where prompts through the pool are in time:

    s = 1 / R + b / W                     seconds of a prompt token on its way, pool then card
    E[l] s + handover + Wp + Wc + Wd + z sqrt(Var[l] s^2 + Var[Wp] + Var[Wc] + Var[Wd]) <= T

The waits at n prefill engines, at min(n, N - n) cards and for one of the places of decodes in the
steps of N - n mixed engines, (D - c0 - m) / (c1 + c2 h) in each, B at most, taken for o steps of D,
are those of M/G/k queues (Sakasegawa, 1977): none with probability 1 - pi, else exponential. z is
the quantile of an exponential, in standard deviations beyond its mean: 3.6 at 99%; lognormal
prompts of the same spread have 3.9.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from controller.capacity import out_of_reach, typical_itl_s
from controller.config import BatchingConfig, Sla
from controller.models.lengths import LengthMoments
from controller.models.step_time import StepModel

# Another number of prefill engines has to carry this share more: figures of lengths and steps are
# good to a few percent, and each change costs the time in which batches empty and fill.
WORTH = 0.05
# Dwell: half a minute, in which a batch of short answers has emptied, and lengths are known anew.
DWELL_S = 30.0
# What a request waits between its halves, in steps of D: half of one until its load begins, one to
# compute its first token.
HANDOVER_STEPS = 1.5
HALVINGS = 12  # of the load of a pool: its rate to 1/4096
LEAST_ENDED = 100  # requests: their mean is known to 10% if lengths spread as far as they are


@dataclass(frozen=True, slots=True)
class Transfer:
    """How KV gets from one engine to another.

    Args:
        kv_bytes: of one token.
        bytes_per_s: of an engine's network card, in each direction.
        latency_s: of one transfer, whatever its size.
    """

    kv_bytes: float
    bytes_per_s: float
    latency_s: float = 0.0

    def wire_s(self, tokens: float) -> float:
        """What so many tokens take on a card, seconds."""
        return tokens * self.kv_bytes / self.bytes_per_s

    def time_s(self, tokens: float) -> float:
        """What a transfer takes that nothing stands before, seconds."""
        return self.latency_s + self.wire_s(tokens)

    def handover_s(self, itl_s: float) -> float:
        """What a request waits on its way apart from computing, queues and the card, seconds."""
        return self.latency_s + HANDOVER_STEPS * itl_s


@dataclass(frozen=True, slots=True)
class Fleet:
    """Engines that are alike.

    Args:
        engines: N, at least 1.
        most_running: requests of a batch, at most.
        budget: M, tokens of a step.
        kv_tokens: of KV memory; 0: the model keeps none.
    """

    engines: int
    most_running: int
    budget: int
    kv_tokens: int


@dataclass(frozen=True, slots=True)
class Split:
    """What a fleet carries with so many prefill engines.

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
    """R of one prefill engine; infinite if the model charges nothing for a step."""
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
    """What the fleet carries with so many prefill engines, from 0 to N - 1.

    Args:
        lengths: of at least one request, with output.
        sla: with an ITL.
        direct: requests may be sent to mixed engines as they are; else all go through.
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
        # With prompts steps are as long as the ITL lets them; those of decodes alone end sooner.
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
    """Prefill engines, cards and places of decodes, as queues in series.

    Args:
        compute_s, wire_s: of a prompt token at one of them.
        engines, cards: how many of each work side by side.
        step_s: of a token of the answer.
        places: of decodes.
    """

    compute_s: float
    engines: int
    wire_s: float
    cards: int
    step_s: float
    places: int

    def in_time_per_s(self, lengths: LengthMoments, sla: Sla, handover_s: float) -> float:
        """Requests/s for whom the percentile of the time to first token is within the SLA.

        Without a ``ttft_ms`` as many as all queues carry.
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
    """What it carries with 0 to N - 1 prefill engines."""
    return tuple(
        split_of(model, lengths, fleet, transfer, sla, n, direct=direct)
        for n in range(fleet.engines)
    )


def best_of(found: Sequence[Split]) -> Split:
    """The one that carries most; of those that are as good to ``WORTH``, the fewest prefill."""
    most = max(one.per_s for one in found)
    return next(one for one in found if one.per_s >= most / (1 + WORTH))


class RoleChooser:
    """The number of prefill engines over time, with hysteresis and a least dwell.

    Attributes:
        prefill: how many are wanted now.
    """

    def __init__(self, dwell_s: float = DWELL_S) -> None:
        self._dwell_s = dwell_s
        self._changed_s = float("-inf")
        self._engines = 0
        self.prefill = 0

    def see(self, found: Sequence[Split], now_s: float) -> int:
        """The number that is wanted, by what each would carry (from 0 on).

        What was chosen for another number of engines need not last out the dwell.
        """
        same, self._engines = len(found) == self._engines, len(found)
        if same and now_s < self._changed_s + self._dwell_s:
            return self.prefill
        best, now = best_of(found), found[min(self.prefill, len(found) - 1)]
        if best.prefill != self.prefill and best.per_s > now.per_s * (1 + WORTH):
            self.prefill, self._changed_s = best.prefill, now_s
        return self.prefill


@functools.lru_cache(maxsize=64)  # asked for with every report of such an engine
def as_prefill(batching: BatchingConfig) -> BatchingConfig:
    """The same batching for an engine that computes prompts alone: no time between tokens."""
    sla = batching.sla.model_copy(update={"itl_ms": None})
    return batching.model_copy(update={"sla": sla})


def keeps_itl(running: int, waiting: int, *, decodes: bool, without: bool) -> bool:
    """Whether an engine that is to compute prompts for others still keeps its ITL.

    It keeps it while it decodes. Once as many requests wait as run, it gives the ITL up until none
    waits: under the ITL it computes half as many prompts, and waiting requests would be late for
    as long as the last answer takes. That also ends late prompts of its own, whose turn is rare.

    Args:
        running: requests of either kind.
        waiting: those for others, and its own of before it was to compute prompts.
        decodes: some are answered here.
        without: it has given its ITL up.
    """
    return decodes and waiting < (1 if without else max(running, 1))
