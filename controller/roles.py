"""How many engines of a fleet compute prompts for the others. Pure; time comes in.

An engine in the role ``prefill`` computes prompts under its whole token budget M, without an ITL,
and hands their KV over; one in the role ``mixed`` decodes under the ITL target D, with a chunk of
prompts beside. A request goes through a prefill engine, or is sent to a mixed engine as it is.
With c0..c4, m the step-time model, i and o the mean lengths, h the mean KV of a decode:

    prefill engine   R = M / (c0 + m + c M) tokens/s,  c = c3 + c4 i / 2
    a decode         d = (c1 + c2 h) o seconds of a mixed engine's steps
    a prompt there   p = c i seconds

x requests/s through n prefill engines and y/s direct are carried by N - n mixed ones where

    x i <= n R,   x i b <= W min(n, N - n)                   the pool, and the network cards
    x d + y (p + d) <= (N - n) (D - c0 - m) / D              steps take D at most
    x (g + d) + y (g + p + d) <= N - n,  g = o (c0 + m) / B  the batch is B at most

with b bytes of KV a token and W bytes/s of a card. A prompt costs less in the pool, where c0 is
shared by M tokens, so x is as large as may be, and y takes what is left of the mixed engines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.capacity import out_of_reach, typical_itl_s
from controller.models.lengths import LengthMoments
from controller.models.step_time import StepModel

# Another number of prefill engines has to carry this share more: figures of lengths and steps are
# good to a few percent, and each change costs the time in which batches empty and fill.
WORTH = 0.05
# Dwell: half a minute, in which a batch of short answers has emptied, and lengths are known anew.
DWELL_S = 30.0
LEAST_ENDED = 100  # requests: their mean is known to 10% where lengths spread as far as they are


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
    """R of one prefill engine; infinite where the model charges nothing for a step."""
    step_s = model.c0 + model.mixed_s + _per_token_s(model, mean_prompt) * budget
    return budget / step_s if step_s > 0 else float("inf")


def _per_token_s(model: StepModel, mean_prompt: float) -> float:
    return model.c3 + model.c4 * mean_prompt / 2


def split_of(
    model: StepModel,
    lengths: LengthMoments,
    fleet: Fleet,
    transfer: Transfer,
    itl_s: float,
    prefill: int,
    *,
    direct: bool = True,
) -> Split:
    """What the fleet carries with so many prefill engines, from 0 to N - 1.

    Args:
        lengths: of at least one request, with output.
        itl_s: D, seconds.
        direct: requests may be sent to mixed engines as they are; else all go through.
    """
    mixed = fleet.engines - prefill
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
        pool = prefill * prefill_tokens_per_s(model, fleet.budget, mean_in)
        cards = min(prefill, mixed) / max(transfer.wire_s(1), 1e-12)
        x = min(pool, cards) / max(mean_in, 1e-9)
        x = min(x, *(room / max(each, 1e-12) for room, each in zip(left, through, strict=True)))
    if prefill and not direct:
        return Split(prefill, x, 0.0)
    y = min(
        max(room - x * each, 0.0) / max(each + prompt_s, 1e-12)
        for room, each in zip(left, through, strict=True)
    )
    return Split(prefill, x, y)


def splits(
    model: StepModel,
    lengths: LengthMoments,
    fleet: Fleet,
    transfer: Transfer,
    itl_s: float,
    *,
    direct: bool = True,
) -> tuple[Split, ...]:
    """What it carries with 0 to N - 1 prefill engines."""
    return tuple(
        split_of(model, lengths, fleet, transfer, itl_s, n, direct=direct)
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
        self.prefill = 0

    def see(self, found: Sequence[Split], now_s: float) -> int:
        """The number that is wanted, by what each would carry (from 0 on)."""
        if now_s < self._changed_s + self._dwell_s:
            return self.prefill
        best, now = best_of(found), found[min(self.prefill, len(found) - 1)]
        if best.prefill != self.prefill and best.per_s > now.per_s * (1 + WORTH):
            self.prefill, self._changed_s = best.prefill, now_s
        return self.prefill
