"""Random lives of an engine: what happens to it, step by step, whatever its scheduler does."""

import contextlib
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from tests.vllm.harness import BLOCK, Rig, engine_config, ngram, token

STEPS = 40  # in which something happens; then the life runs to its end
Event = tuple[str, tuple[Any, ...]]


@dataclass
class Life:
    """Drawn from its number alone.

    Args:
        number: of the life.
        roomy: slots and KV memory for all that may come; no bound on one prompt, no drafts.
        plain: no sessions, pauses or resets of the prefix cache.

    Attributes:
        sizes, layers: arguments of ``engine_config`` and of ``Rig``.
        steps: what happens before each step.
    """

    number: int
    roomy: bool = False
    plain: bool = False
    sizes: dict[str, Any] = field(default_factory=dict)
    layers: dict[str, Any] = field(default_factory=dict)
    steps: list[list[Event]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = random.Random(f"life {self.number}")
        ahead, caches = rng.random() < 0.5, rng.random() < 0.6
        drafts = not ahead and rng.random() < 0.25 and not self.roomy  # a draft is a token, too
        self.sizes = {
            "blocks": 100_000 if self.roomy else 1 + rng.choice((70, 90, 150, 4000)),
            "max_num_seqs": 512 if self.roomy else rng.choice((1, 3, 24, 64)),
            "max_num_batched_tokens": rng.choice(
                (512, 2048) if self.roomy else (64, 100, 256, 2048)
            ),
            "scheduling_policy": rng.choice(("fcfs", "priority")),
            "enable_prefix_caching": caches,
            "async_scheduling": ahead,
        }
        if rng.random() < 0.25 and not self.roomy:
            self.sizes["long_prefill_token_threshold"] = rng.choice((16, 40, 64))
        if drafts:
            self.sizes["speculative_config"] = ngram(3)
        self.layers = {"in_flight": 1 + ahead, "accepted": rng.randint(0, 3) if drafts else 0}
        if not drafts and rng.random() < 0.4:
            self.layers |= rng.choice(({"window": 64}, {"only_window": 48}))
        self._come = rng.choice((0.3, 0.8, 2.5))
        self._count = 0
        self.steps = [self._step(rng) for _ in range(STEPS)]

    def _step(self, rng: random.Random) -> list[Event]:
        events = [self._request(rng) for _ in range(int(rng.expovariate(1 / self._come)))]
        chance = rng.random()
        if chance < 0.1 and self._count:
            events.append(("abort", (f"r{rng.randrange(self._count)}",)))
        elif chance < 0.14:  # a clock that is set, a machine that slept
            events.append(("jump", (rng.choice((-30.0, -0.5, 5.0, 3600.0)),)))
        elif chance < 0.2:
            events.append(("step_s", (rng.choice((0.0, 0.002, 0.02, 0.3)),)))
        elif chance < 0.22 and not self.plain:
            events.append(("reset", (rng.random() < 0.5,)))
        elif chance < 0.24 and not self.plain:
            events.append(("pause", (rng.choice((PauseState.PAUSED_NEW, PauseState.PAUSED_ALL)),)))
        elif chance < 0.3:
            events.append(("exchange", ()))
        if chance > 0.6:
            events.append(("pause", (PauseState.UNPAUSED,)))
        return events

    def _request(self, rng: random.Random) -> Event:
        number, self._count = self._count, self._count + 1
        shared = rng.choice((0, 0, 2 * BLOCK, 5 * BLOCK + 3))
        own = rng.choice((1, 7, 30, 120, 400))
        output = rng.choice((1, 2, 9, 40, 80))
        stops = rng.randrange(output) if rng.random() < 0.2 else None
        resumable = not self.plain and rng.random() < 0.05
        tokens = [1] * shared + [2 + number % 500] * own
        return "add", (f"r{number}", tokens, output, rng.randint(0, 2), stops, resumable)


class Lived(Rig):
    """One scheduler, to which a life happens.

    Attributes:
        told: of each output that was taken, what it told clients.
        asked: request id: how many tokens it is to get; sessions are not among them.
    """

    def __init__(self, model: Path, life: Life, scheduler: type[Scheduler], block: Any) -> None:
        self.told: list[Any] = []
        self.asked: dict[str, int] = {}
        self._sessions: list[str] = []
        config = engine_config(model, additional_config=block, **life.sizes)
        super().__init__(config, scheduler, **life.layers)
        self.set_s = 0.0  # how far the wall clock was set
        type(self.scheduler).wall_s = lambda _: self.now_s + self.set_s

    def happen(self, event: Event) -> None:
        kind, given = event
        getattr(self, f"_{kind}")(*given)

    def off(self) -> dict[str, int]:
        """How many tokens requests got that did not get those they asked for."""
        got = {name: len(self.tokens[name]) for name in self.asked}
        return {name: n for name, n in got.items() if n != self.asked[name]}

    def end(self) -> bool:
        """Whether nothing is left to do, once sessions were told that no more input comes."""
        for request_id in self._sessions:
            self.abort(request_id)
        self._sessions.clear()
        return not self.scheduler.has_unfinished_requests()

    def _add(
        self, name: str, tokens: list[int], output: int, rank: int, stops: Any, resumable: bool
    ) -> None:
        ends = None if stops is None else [token(name, stops)]
        params = SamplingParams(max_tokens=output, ignore_eos=True, stop_token_ids=ends)
        request = Request(
            name,
            list(tokens),
            params,
            None,
            arrival_time=self.now_s + self.set_s,
            block_hasher=self._hasher,
            priority=rank if self.scheduler.policy.value == "priority" else 0,
            resumable=resumable,
        )
        if resumable:
            self._sessions.append(name)
        else:
            said = [token(name, k) for k in range(output)]
            self.asked[name] = said.index(ends[0]) + 1 if ends else output
        self.scheduler.add_request(request)

    def _abort(self, name: str) -> None:
        self.asked.pop(name, None)
        self.abort(name)

    def _jump(self, seconds: float) -> None:
        self.now_s += max(seconds, 0.0)  # the engine's own clock never goes back
        self.set_s += min(seconds, 0.0)

    def _step_s(self, seconds: float) -> None:
        self.step_s = seconds

    def _reset(self, running: bool) -> None:
        with contextlib.suppress(RuntimeError):  # vLLM's own: a session holds blocks of it
            self.scheduler.reset_prefix_cache(reset_running_requests=running)

    def _pause(self, state: PauseState) -> None:
        self.scheduler.set_pause_state(state)

    def _exchange(self) -> None:
        if hasattr(self.scheduler, "exchange"):
            self.exchange()

    def _read(self, outputs: Any) -> None:
        super()._read(outputs)
        self.told.append({k: (o.outputs, o.finished_requests) for k, o in outputs.items()})


def lived(life: Life, *rigs: Lived) -> list[tuple[SchedulerOutput, ...]]:
    """Let it happen to all of them, to the end; what each of them scheduled, step by step."""
    steps = []
    for events in life.steps:
        for rig in rigs:
            for event in events:
                rig.happen(event)
        steps.append(tuple(rig.step() for rig in rigs))
    for rig in rigs:
        rig.happen(("pause", (PauseState.UNPAUSED,)))
    for _ in range(20_000):
        ended = [rig.end() for rig in rigs]
        if all(ended):
            break
        steps.append(tuple(rig.step() for rig in rigs))
    for rig in rigs:
        while rig._queue:
            rig.take()
    return steps
