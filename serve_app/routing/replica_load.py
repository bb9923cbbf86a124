"""What a replica says of the room it has left, and how long a request would wait for it. Pure.

Every process that holds a handle gets the router by value, whether or not this project is
installed there: this module and its neighbours import the standard library alone.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Literal

KEY = "brimful"  # under which replicas publish it among Ray Serve's routing stats
UNLED = 1.5  # how much longer a wait counts where limits or figures may be out of date
MOST_WAIT_S = 1e6
# Where no replica knows yet; they weigh what is asked against what is queued, no more.
PREFILL_TOKENS_PER_S, DRAIN_PER_S = 5000.0, 2.0
PROMPT_TOKENS, OUTPUT_TOKENS = 500.0, 200.0


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """What one replica holds and may hold, under the limits that it keeps to now.

    Args:
        taken_unix_s: when the engine was asked, by the replica's own clock.
        max_running: running requests, at most.
        prompt_backlog_tokens: prompts not computed yet, of running and waiting requests, without
            what the prefix cache holds of them.
        kv_free_tokens: KV memory that nobody holds.
        arrivals: counted since the engine started.
        prefill_tokens_per_s: at which it computes prompts beside what decodes; None: not known.
        drain_per_s: requests/s that end while it is full; None: not known.
        mean_prompt_tokens, mean_output_tokens: of the last finished requests; None: none finished.
        led: it goes by the batch controller's limits, not by its local fallback.
        most_running, most_prefill_tokens_per_s: the same two where no SLA bounds them; None: not
            known, or nothing does.
        most_decodes: running requests, where steps have no prompts; None: not known.
        prefill: 1 where it computes prompts for others, and is to be sent nothing else.
        kv_backlog_tokens: of KV memory that prompts will take which are not there yet; None: as
            many as are to be computed.
        cached_frac: share of the prompts' tokens that the prefix cache held lately; None: none
            finished, or it is off.
        written_tokens: to KV memory since the engine started; None: not known.
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
    """The room in a replica's routing stats; None where none is there, or none that can be true."""
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
    """What replicas of this deployment usually say: for one that does not know it of itself."""

    prefill_tokens_per_s: float | None = None
    drain_per_s: float | None = None
    mean_prompt_tokens: float | None = None
    mean_output_tokens: float | None = None
    cached_frac: float | None = None

    def moved(self, room: ReplicaLoad) -> "LoadDefaults":
        """A tenth of the way to what ``room`` says."""
        return LoadDefaults(
            _towards(self.prefill_tokens_per_s, room.prefill_tokens_per_s),
            _towards(self.drain_per_s, room.drain_per_s),
            _towards(self.mean_prompt_tokens, room.mean_prompt_tokens),
            _towards(self.mean_output_tokens, room.mean_output_tokens),
            _share(self.cached_frac, room.cached_frac),
        )

    def to_compute(self, prompt_tokens: float, cached_tokens: float | None) -> float:
        """What is to be computed of a prompt, tokens.

        Args:
            cached_tokens: of it, that are known to be cached; None: the usual share.
        """
        if cached_tokens is None:
            return prompt_tokens * (1 - min(self.cached_frac or 0.0, 1.0))
        return max(prompt_tokens - cached_tokens, 0.0)


def _towards(now: float | None, said: float | None) -> float | None:
    if not said or not now:
        return said or now
    return 0.9 * now + 0.1 * said


def _share(now: float | None, said: float | None) -> float | None:
    """As ``_towards``, but 0 is known, too."""
    if said is None or now is None:
        return now if said is None else said
    return 0.9 * now + 0.1 * said


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request is expected to take.

    Args:
        prompt_tokens, max_tokens: of its prompt, and of its answer at most.
        part: ``whole``; ``direct``: all of it beside requests whose prompts others compute;
            ``loaded``: its answer, with the KV of its prompt from elsewhere; ``prompt``: its prompt
            alone.
    """

    prompt_tokens: float
    max_tokens: float | None = None
    part: Literal["whole", "direct", "loaded", "prompt"] = "whole"


@dataclass(frozen=True, slots=True)
class Forecast:
    """How a request would fare at one replica.

    Args:
        wait_s: until its first token.
        prompt_s: of it, the time that what is not cached of its own prompt takes.
        filled: running and waiting requests over the cap.
        saved_s: what its prompt would take besides if nothing of it were known to be cached.
    """

    wait_s: float
    prompt_s: float
    filled: float
    saved_s: float = 0.0

    def detoured(self, detour_s: float) -> "Forecast":
        """The same as if the wait were so much longer."""
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
    """How ``asked`` would fare at a replica with this room.

    Its prompt is computed after the backlog, at the prefill rate. Where the cap is reached, or KV
    memory is short, as many requests have to end before it as are in excess, at the drain rate.

    Args:
        room: None: a replica that has not said anything yet, taken to be empty and usual.
        sent_requests, sent_tokens: sent there since the room was measured, prompts in tokens that
            are to be computed.
        sent_kv_tokens: of KV memory that these take; None: as many as are computed.
        cached_tokens: of its prompt, that this replica is known to hold; None: the share that is
            usually found.
        promised: requests whose prompts are computed elsewhere for it, and their tokens.
        age_s: of the room; an engine that computes prompts alone has done so much since.
        fresh: whether the figures are new enough to be trusted.
        strict: whether it goes by the SLA's cap and rate, which are of the strictest that is
            promised: classes that are gathered apart from those fill a replica beyond it.
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
        if asked.part == "loaded":  # it starts before what waits for its prompt
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
    """In an engine that computes prompts alone, at this rate."""
    left = max(backlog - age_s * per_s, 0.0)
    prompt_s = new_tokens / per_s
    return Forecast(min(left / per_s + prompt_s, MOST_WAIT_S), prompt_s, left)
