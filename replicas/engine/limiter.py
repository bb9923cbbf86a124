"""The limits of one step, from the limits that the controller set. Pure: numbers in, numbers out.

Twice a second the policy decides how long a step may take, what steps cost and how much memory is
kept free. Here the chunk of each step follows from that and from the present requests.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from controller.law.step_model import EXCEPT, FASTEST, SLOWEST, SPEED_STEPS
from controller.models.step_time import TILE, TILES, StepModel
from controller.records import BatchLimits, EngineLimits, EngineState, Reason, StepLimits

MOST_SKIPS = 20  # steps after which a skipped decode has its turn; no longer than a stall
PROMPTS_SHARE = 0.5  # of a step after c0, for prompts with a promised ITL if decodes are skipped
STARVED_STEPS = 100  # a percentile of 99 allows one late step in 100
# Full load: more than FULL times the waiting requests of the law's forecast, and FEW_WAITING.
FULL, FEW_WAITING = 2, 16
# A prompt is long if it would fill this many chunks. Long prompts share a chunk.
LONG_CHUNKS = 4
# With a TTFT a long prompt takes more chunks than the TTFT has time for, or than these.
MOST_CHUNKS = 40

Waiting = Callable[[int], Iterable[tuple[int, int]]]
"""Gives, for the first n that may start, the tokens to compute and the KV tokens to take."""


class SpeedFactor:
    """How much longer than by the model six of the last seven steps took.

    Attributes:
        value: the factor; 1: as the model says.
    """

    def __init__(self) -> None:
        self._ratios: list[float] = []
        self.value = 1.0

    def observe(self, took_s: float, predicted_s: float, usual: float) -> None:
        """Count a step; a factor up to ``usual`` is noise."""
        if not (predicted_s > 0 and took_s > 0):
            return
        ratios = self._ratios
        ratios.append(took_s / predicted_s)
        if len(ratios) < SPEED_STEPS:
            return
        each = sorted(ratios)
        del ratios[0]
        common = max(each[EXCEPT], 1.0) * min(each[-1 - EXCEPT], 1.0)
        noise = 1 / usual <= common <= usual
        self.value = 1.0 if noise else min(max(common, FASTEST), SLOWEST)


def prompt_room(
    model: StepModel, decodes: int, kv: int, context: int, target_s: float, speed: float = 1.0
) -> float:
    """The longest prefill chunk, tokens, of a step that ends by ``target_s``; may be negative.

    Args:
        context: computed tokens of the first prompt in prefill.
        speed: factor of step times over the model's.
    """
    longest = _tile_room if model.tiles else _room
    room = longest(model, decodes, kv, context, target_s / speed)
    if 0 < model.graph_tokens < decodes + room and target_s < model.eager_s:
        return float(model.graph_tokens - decodes)
    return room


def _room(model: StepModel, decodes: int, kv: int, context: int, target_s: float) -> float:
    room_s = target_s - model.mixed_s - model.c0 - model.c1 * decodes - model.c2 * kv
    # c4/2 P^2 + (c3 + c4 context) P = room
    linear = max(model.c3 + model.c4 * context, 1e-12)
    if model.c4 and room_s > 0:
        # Not (sqrt - linear) / c4, which cancels if c4 is nearly 0.
        return 2 * room_s / (linear + (linear * linear + 2 * model.c4 * room_s) ** 0.5)
    return room_s / linear


def _tile_room(model: StepModel, decodes: int, kv: int, context: int, target_s: float) -> float:
    """The same up to the first tile that takes too long."""
    alone_s = model.c0 + model.c1 * decodes + model.c2 * kv + model.mixed_s
    each_s, square_s, factors = model.c3 + model.c4 * context, model.c4 / 2, (*model.tiles, 1.0)
    for tile in range(decodes // TILE, TILES):
        end = (tile + 1) * TILE - decodes
        if factors[tile + 1] * (alone_s + end * (each_s + end * square_s)) > target_s:
            return min(_room(model, decodes, kv, context, target_s / factors[tile]), end - 1)
    return _room(model, decodes, kv, context, target_s)


class Limiter:
    """Makes each step of one engine fit the limits that hold.

    Attributes:
        speed: factor of the engine's step times over the model's.
    """

    def __init__(self, engine: EngineLimits, b_min: int, long_chunks: int | None) -> None:
        self._engine, self._b_min, self._long_chunks = engine, b_min, long_chunks
        self._starved_steps = 0
        self.speed = SpeedFactor()

    def limits(self, state: EngineState, held: BatchLimits, waiting: Waiting) -> StepLimits:
        """The limits of the next step.

        Args:
            held: the present limits of the policy.
            waiting: called only if requests may start and memory or the chunk may stop them.
        """
        engine = self._engine
        most = engine.max_num_batched_tokens
        if held.reserve is None:  # the policy leaves memory and chunks to vLLM
            budget = held.token_budget
            if budget is None:
                return StepLimits(held.max_running, most)
            return StepLimits(held.max_running, budget, may_pause_prefill=held.reason == "static")
        target_s = self._target_s(state, held)
        skipped, target_s = self._skipped(state, held, target_s) if held.by_class else (0, target_s)
        if not state.waiting and not state.prompts:
            self._starved_steps = 0
            return StepLimits(held.max_running, most, reason="load", skipped=skipped)
        if skipped:
            left = state.decodes - skipped
            kv = state.decode_kv_tokens * left // state.decodes
            state = replace(state, decodes=left, decode_kv_tokens=kv)
        for_decodes = engine.decode_tokens(state.decodes + state.ready, state.drafts)
        free = max(most - for_decodes, 0)
        chunk = free
        if target_s is not None and held.model is not None and state.decodes + state.ready:
            chunk = self._chunk(state, held.model, target_s, free, skipped=skipped > 0)
        one = int(state.to_load > 0)  # vLLM begins no KV transfer without a free token
        chunk = max(chunk - one, 0)
        split = self._split([left for left, _ in state.prompts], chunk)
        starts, reason = self._starts(state, held, split, waiting, sized=chunk + one < free)
        longest = split.longest()
        return StepLimits(
            state.running + state.ready + starts,
            min(for_decodes + chunk + one, most),
            may_pause_prefill=state.decodes > 0,
            reason=reason,
            longest_chunk_tokens=longest,
            longest_always=self._long_chunks is not None and longest < chunk + one,
            decodes_first=held.target_s is not None or bool(held.by_class),
            counts_loads=True,
            skipped=skipped,
        )

    def _target_s(self, state: EngineState, held: BatchLimits) -> float | None:
        """How long the step may take: the least of the classes that decode in it."""
        full = state.waiting > max(FULL * held.counted_waiting, FEW_WAITING)
        if held.by_class:
            each = [one.target_full_s if full else one.target_s for one in held.by_class]
            # D is the target of a class that appeared since.
            each += [s if s < math.inf else 0.0 for s in state.itl_s[len(each) :]]
            there = [s for s, n in zip(each, state.by_class, strict=False) if n and s > 0]
            return min(there, default=None)
        return held.target_full_s if full else held.target_s

    def _skipped(
        self, state: EngineState, held: BatchLimits, target_s: float | None
    ) -> tuple[int, float | None]:
        """Decodes without a promised ITL to skip in a step, and how long it may then take.

        Enough are skipped that the others are in time. If a prompt with a promised ITL is in
        prefill, or a waiting one outranks, half of the step after c0 is kept for prompts. The law
        does not count on skipping: its target is beyond D if all decodes together are late, so it
        is not used if half of them have no promise. None is skipped if the others alone are late,
        or if one of them might be preempted: vLLM preempts only requests that it sees.
        """
        engine, model, decodes = self._engine, held.model, state.decodes
        if target_s is None or model is None or not (state.loose and decodes):
            return 0, target_s
        pairs = zip(held.by_class, state.by_class, strict=False)
        inside_s = min((one.inside_s for one, n in pairs if n and one.inside_s), default=0.0)
        new = decodes * engine.block_tokens + sum(left for left, _ in state.prompts)
        if not inside_s or state.kv_used_tokens + new > engine.kv_tokens:
            return 0, target_s
        limit_s = min(target_s, inside_s)
        room_s = limit_s / max(self.speed.value, 1.0) - model.c0
        decodes_s = model.c1 * decodes + model.c2 * state.decode_kv_tokens
        most = state.loose - math.ceil(state.loose / MOST_SKIPS)
        if decodes_s * (decodes - most) / decodes > room_s:
            return 0, target_s
        if state.hurried or (state.waiting and state.outranks()):
            room_s *= 1 - PROMPTS_SHARE
        over = math.ceil(decodes * (1 - room_s / max(decodes_s, 1e-9)))
        if over > 0:
            return min(over, most), limit_s
        return 0, limit_s if 2 * state.loose >= decodes else target_s

    def _chunk(
        self, state: EngineState, model: StepModel, target_s: float, most: int, *, skipped: bool
    ) -> int:
        """Prompt tokens that end the step by its target, from 0 to ``most``."""
        engine, prompts = self._engine, state.prompts
        context = prompts[0][1] if prompts else 0
        # Requests whose KV has arrived decode in this step as well.
        decodes = state.decodes + state.ready
        kv = state.decode_kv_tokens * decodes // max(state.decodes, 1)
        room = prompt_room(model, decodes, kv, context, target_s, self.speed.value)
        if self.speed.value > 1 and room < engine.block_tokens and not skipped:
            # Decodes alone are late in such a phase, and a smaller chunk does not help.
            room = prompt_room(model, decodes, kv, context, target_s)
        chunk = int(min(max(room, 0), most))
        whole = engine.whole_chunk_tokens
        least = min(whole or engine.block_tokens, most)
        self._starved_steps = 0 if chunk >= least else self._starved_steps + 1
        # B_min asks for more requests, so every step computes part of a prompt.
        if self._starved_steps > STARVED_STEPS or state.decodes < self._b_min:
            chunk = max(chunk, least)
        if self._starved_steps > STARVED_STEPS:
            self._starved_steps = 0
        return 0 if whole and chunk < least else chunk

    def _split(self, prompts: list[int], chunk: int) -> "PromptSplit":
        """The division of the chunk, before any request starts."""
        engine = self._engine
        threshold, most = engine.long_prompt_tokens, chunk
        if threshold:
            long, most = threshold, min(chunk, threshold)
            share = chunk * threshold // engine.max_num_batched_tokens
        else:
            long, share = (self._long_chunks or 0) * chunk, chunk // LONG_CHUNKS
        n = sum(left > long for left in prompts) if threshold or self._long_chunks else 0
        if not n:
            return PromptSplit(prompts, chunk, most, long, most)
        # Several long ones have smaller shares, so that some of the chunk is left for others.
        share = max(min(share, chunk // (n + 1)), engine.block_tokens)
        return PromptSplit(prompts, chunk, most, long, min(share, most))

    def _starts(
        self,
        state: EngineState,
        held: BatchLimits,
        split: "PromptSplit",
        waiting: Waiting,
        *,
        sized: bool,
    ) -> tuple[int, Reason | None]:
        """How many requests may start, and what keeps the next one waiting.

        A request starts if its prompt begins in what half-computed prompts leave of the chunk. With
        long prompts in it, requests start up to the last short one that would begin if the long
        ones took only their share.
        """
        here = state.running + state.loading
        slots = held.max_running - here
        if not state.waiting:
            return max(slots, 0), "load"
        least = max(self._b_min - here, 0 if here else 1)
        if slots <= 0:
            # A cap of the policy may be exceeded for priority; one of the config or engine may not.
            if held.reason not in ("memory", "sla") or not state.outranks():
                return max(least, 0), None if held.reason == "load" else held.reason
            slots = 1
        if (
            not sized
            and split.share >= split.most
            and slots >= state.waiting
            and self._holds(state)
        ):
            return slots, "load"
        by_chunk: Reason = "sla" if sized else "bound"
        left, sharing = split.left(split.most), split.left(split.share)
        if sharing <= 0 and not state.to_load:
            return least, by_chunk
        reserve, engine = held.reserve, self._engine
        assert reserve is not None
        taken = state.kv_used_tokens + sum(split.prompts)
        free = engine.kv_tokens - taken - reserve.fixed - reserve.each * here
        starts, stopped = 0, by_chunk
        for before, (tokens, memory) in enumerate(waiting(slots)):  # as many as the chunk holds
            if sharing <= 0 and before >= state.to_load:
                break
            free -= reserve.each + memory
            if free < 0 and engine.kv_tokens:
                # A request that outranks a running one takes the memory kept free for that one.
                now = free + reserve.fixed + reserve.each * (here + 1)
                if before or now < 0 or not state.outranks():
                    stopped = "memory"
                    break
            if left > 0 or tokens <= split.long or before < state.to_load:
                starts = before + 1
            split.newcomers.append(tokens)
            left -= min(tokens, split.most)
            sharing -= min(tokens, split.share)
        else:
            # Fewer may start than wait: vLLM also counts requests that cannot start now.
            stopped = "load" if len(split.newcomers) < slots else held.reason
        del split.newcomers[starts:]
        return max(starts, least), stopped

    def _holds(self, state: EngineState) -> bool:
        """Whether memory holds all requests, each at its greatest length.

        If so, vLLM starts what the step's tokens allow, and requests need no single check.
        """
        engine = self._engine
        if engine.max_model_len is None:
            return False
        each = engine.max_model_len + engine.block_tokens
        most = (state.running + state.waiting) * each
        return state.kv_used_tokens + most <= engine.kv_tokens


class PromptSplit:
    """Divides a step's prompt tokens so that short prompts get past long ones.

    vLLM has one bound for all prompts; it is set so that they and those that start fill the chunk.

    Args:
        prompts: tokens left of each half-computed prompt.
        chunk: tokens for all prompts.
        most: tokens for one prompt.
        long: a prompt with more tokens left is long.
        share: tokens of the chunk that a long one gets at least; ``most`` if none is long.
    """

    __slots__ = ("chunk", "long", "most", "newcomers", "prompts", "share")

    def __init__(self, prompts: list[int], chunk: int, most: int, long: int, share: int) -> None:
        self.prompts, self.chunk, self.most, self.long, self.share = (
            prompts,
            chunk,
            most,
            long,
            share,
        )
        self.newcomers: list[int] = []

    def left(self, longest: int) -> int:
        """Tokens of the chunk that half-computed prompts leave, each taking at most ``longest``."""
        return self.chunk - sum([min(tokens, longest) for tokens in self.prompts])

    def longest(self) -> int:
        """The bound of one prompt, from ``share`` to ``most``."""
        if self.share >= self.most:
            return self.most
        left, each = self.chunk, sorted(self.prompts + self.newcomers)
        for index, tokens in enumerate(each):
            larger = len(each) - index
            if tokens * larger >= left:
                return min(max(left // larger, self.share), self.most)
            left -= tokens
        return self.most


def long_chunks(itl_ms: float | None, ttft_ms: float | None) -> int | None:
    """A prompt that fills more chunks than this is long; None: none is.

    With a TTFT, a prompt that can be in time is not long: if prompts share chunks all are late, one
    after the other most are in time.
    """
    if itl_ms is None:
        return None
    return max(LONG_CHUNKS, int(min((ttft_ms or 0.0) / itl_ms, MOST_CHUNKS)))
