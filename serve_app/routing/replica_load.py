"""The headroom that a replica publishes, and how long a request would wait for it. Pure.

Every process with a handle gets the router by value, whether this project is installed there or
not: this module and its neighbours import only the standard library.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Literal

KEY = "brimful"  # key among Ray Serve's routing stats
UNLED = 1.5  # factor of a wait if limits or statistics may be out of date
MOST_WAIT_S = 1e6
# Defaults while no replica knows; they only weigh a request against the queue.
PREFILL_TOKENS_PER_S, DRAIN_PER_S = 5000.0, 2.0
PROMPT_TOKENS, OUTPUT_TOKENS = 500.0, 200.0


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """What one replica holds and may hold, under its present limits.

    Args:
        taken_unix_s: when the engine was asked, by the replica's clock.
        max_running: running requests, at most.
        prompt_backlog_tokens: prompt tokens yet to be computed, of running and waiting requests;
            prefix hits do not count.
        kv_free_tokens: KV memory that no request holds.
        arrivals: counted since the engine started.
        prefill_tokens_per_s: rate of prompt tokens in steps with decodes; None: unknown.
        drain_per_s: requests/s that end while it is full; None: unknown.
        mean_prompt_tokens, mean_output_tokens: of the last finished requests; None: none finished.
        led: its limits are the batch controller's, not the local fallback's.
        most_running, most_prefill_tokens_per_s: ``max_running`` and ``prefill_tokens_per_s``
            without the SLA; None: unknown, or there is no bound.
        most_decodes: running requests, if steps have no prompts; None: unknown.
        prefill: 1: it computes prompts for others, and must get nothing else.
        kv_backlog_tokens: KV memory that prompts will take beyond what they hold; None: that of
            ``prompt_backlog_tokens``.
        cached_frac: share of prompt tokens that the prefix cache held lately; None: none finished,
            or the cache is off.
        written_tokens: to KV memory since the engine started; None: unknown.
    """

    taken_unix_s: float
    running: int
    waiting: int
    max_running: int
    prompt_backlog_tokens: int
    kv_free_tokens: int
    arrivals: int
    prefill_tokens_per_s: float | None = None
    drain_per_s: float | None = None
    mean_prompt_tokens: float | None = None
    mean_output_tokens: float | None = None
    led: bool = True
    most_running: int | None = None
    most_decodes: int | None = None
    most_prefill_tokens_per_s: float | None = None
    prefill: int | None = None
    kv_backlog_tokens: int | None = None
    cached_frac: float | None = None
    written_tokens: int | None = None


_ALLOWED = frozenset(field.name for field in fields(ReplicaLoad))
_NEEDED = tuple(field.name for field in fields(ReplicaLoad) if field.default is MISSING)


def read_room(stats: Mapping[str, Any]) -> ReplicaLoad | None:
    """The load in a replica's routing stats; None if there is none, or it is impossible."""
    data = stats.get(KEY)
    if not isinstance(data, Mapping) or any(data.get(name) is None for name in _NEEDED):
        return None
    known = {name: value for name, value in data.items() if name in _ALLOWED}
    if all(_possible(value) for value in known.values()):
        return ReplicaLoad(**known)
    return None


def is_dead(stats: Mapping[str, Any]) -> bool:
    """Whether a replica says that its engine is dead."""
    data = stats.get(KEY)
    return isinstance(data, Mapping) and bool(data.get("dead"))


def _possible(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and math.isfinite(value) and value >= 0)


@dataclass(frozen=True, slots=True)
class LoadDefaults:
    """Usual values of this deployment, for a replica that does not know its own."""

    prefill_tokens_per_s: float | None = None
    drain_per_s: float | None = None
    mean_prompt_tokens: float | None = None
    mean_output_tokens: float | None = None
    cached_frac: float | None = None

    def moved(self, room: ReplicaLoad) -> "LoadDefaults":
        """Values moved a tenth of the way to those of ``room``."""
        return LoadDefaults(
            _towards(self.prefill_tokens_per_s, room.prefill_tokens_per_s),
            _towards(self.drain_per_s, room.drain_per_s),
            _towards(self.mean_prompt_tokens, room.mean_prompt_tokens),
            _towards(self.mean_output_tokens, room.mean_output_tokens),
            _share(self.cached_frac, room.cached_frac),
        )

    def to_compute(self, prompt_tokens: float, cached_tokens: float | None) -> float:
        """Prompt tokens that have to be computed.

        Args:
            cached_tokens: tokens known to be cached; None: the usual share.
        """
        if cached_tokens is None:
            return prompt_tokens * (1 - min(self.cached_frac or 0.0, 1.0))
        return max(prompt_tokens - cached_tokens, 0.0)


def _towards(now: float | None, said: float | None) -> float | None:
    if not said or not now:
        return said or now
    return 0.9 * now + 0.1 * said


def _share(now: float | None, said: float | None) -> float | None:
    """As ``_towards``, but 0 counts as known."""
    if said is None or now is None:
        return now if said is None else said
    return 0.9 * now + 0.1 * said


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request is expected to need.

    Args:
        prompt_tokens, max_tokens: of its prompt, and of its answer at most.
        part: ``whole``; ``direct``: a whole request, with other requests whose prompts are computed
            elsewhere; ``loaded``: its answer, with the prompt's KV from elsewhere; ``prompt``: its
            prompt only.
    """

    prompt_tokens: float
    max_tokens: float | None = None
    part: Literal["whole", "direct", "loaded", "prompt"] = "whole"


@dataclass(frozen=True, slots=True)
class Forecast:
    """How a request would do at one replica.

    Args:
        wait_s: until its first token.
        prompt_s: the part for computing its own prompt, without cached tokens.
        filled: load: running and waiting requests over the cap.
        saved_s: additional time for its prompt if none were cached.
    """

    wait_s: float
    prompt_s: float
    filled: float
    saved_s: float = 0.0

    def detoured(self, detour_s: float) -> "Forecast":
        """The forecast with a longer wait."""
        return replace(self, wait_s=self.wait_s + detour_s)


def forecast(
    room: ReplicaLoad | None,
    asked: Asked,
    usual: LoadDefaults,
    *,
    sent_requests: float = 0.0,
    sent_tokens: float = 0.0,
    sent_kv_tokens: float | None = None,
    cached_tokens: float | None = None,
    promised: tuple[float, float] = (0.0, 0.0),
    age_s: float = 0.0,
    fresh: bool = True,
    strict: bool = True,
) -> Forecast:
    """How ``asked`` would do at a replica with this load.

    Its prompt is computed after the backlog, at the prefill rate. If the cap is reached or KV
    memory is short, the excess requests have to end first, at the drain rate.

    Args:
        room: None: a replica without statistics, taken to be empty and usual.
        sent_requests, sent_tokens: sent there since the load was measured; prompt tokens to
            compute.
        sent_kv_tokens: KV memory that these take; None: ``sent_tokens``.
        cached_tokens: tokens of its prompt that this replica is known to hold; None: the usual
            share.
        promised: requests whose prompts are computed elsewhere for it, and their tokens.
        age_s: of the load; an engine that computes only prompts has worked on since.
        fresh: whether the statistics are new enough to be trusted.
        strict: whether the SLA's cap and rate apply, which are those of the strictest class. Other
            classes, kept apart by class affinity, fill a replica beyond them.
    """
    new_tokens = usual.to_compute(asked.prompt_tokens, cached_tokens)
    if room is None:
        prefill_per_s = usual.prefill_tokens_per_s or PREFILL_TOKENS_PER_S
        prompt_s = new_tokens / prefill_per_s
        wait_s, filled = sent_tokens / prefill_per_s + prompt_s, 0.0
    else:
        own_per_s = None if strict else room.most_prefill_tokens_per_s
        own_per_s = own_per_s or room.prefill_tokens_per_s
        prefill_per_s = own_per_s or usual.prefill_tokens_per_s or PREFILL_TOKENS_PER_S
        prompt_s = new_tokens / prefill_per_s
        cap = room.max_running if strict else room.most_running or room.max_running
        inside = room.running + room.waiting + sent_requests + promised[0]
        backlog = room.prompt_backlog_tokens + sent_tokens
        if asked.part == "prompt":
            return _of_prompt(room, new_tokens, backlog, prefill_per_s, age_s)
        if asked.part != "whole":
            cap = room.most_decodes or cap
        drain_per_s = room.drain_per_s or usual.drain_per_s or DRAIN_PER_S
        mean_prompt = room.mean_prompt_tokens or usual.mean_prompt_tokens or PROMPT_TOKENS
        mean_output = room.mean_output_tokens or usual.mean_output_tokens or OUTPUT_TOKENS
        answer = min(mean_output, asked.max_tokens or mean_output)
        queued = room.kv_backlog_tokens
        kv = sent_tokens if sent_kv_tokens is None else sent_kv_tokens
        kv += room.prompt_backlog_tokens if queued is None else queued
        short = kv + promised[1] + asked.prompt_tokens + answer - room.kv_free_tokens
        excess = max(inside + 1 - cap, short / (mean_prompt + mean_output / 2), 0.0)
        if asked.part == "loaded":  # it starts before requests that wait for their prompts
            backlog, prompt_s = 0.0, 0.0
        wait_s = backlog / prefill_per_s + prompt_s + excess / drain_per_s
        filled = inside / max(cap, 1)
    if not fresh or (room is not None and not room.led):
        wait_s, filled = UNLED * wait_s, UNLED * filled
    saved_s = 0.0 if cached_tokens is None else (asked.prompt_tokens - new_tokens) / prefill_per_s
    return Forecast(
        min(wait_s, MOST_WAIT_S), min(prompt_s, MOST_WAIT_S), filled, min(saved_s, MOST_WAIT_S)
    )


def _of_prompt(
    room: ReplicaLoad, new_tokens: float, backlog: float, per_s: float, age_s: float
) -> Forecast:
    """In an engine that computes only prompts, at this rate."""
    left = max(backlog - age_s * per_s, 0.0)
    prompt_s = new_tokens / per_s
    return Forecast(min(left / per_s + prompt_s, MOST_WAIT_S), prompt_s, left)
