"""Engines that die under streams: every token of every stream is checked.

Emulated tokens encode their position; real engines answer the same prompts before, greedily and
undisturbed.
"""

import asyncio
import contextlib
import math
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import psutil
import ray

from benchmarks.faults.client import TIMEOUT_S, ended
from benchmarks.faults.stack import MODEL, SERVER, URL, Fleet
from benchmarks.live.stock_client import Answer, StockClient
from controller.fleet.actor import find_controller
from replicas.emulator.executor import POSITIONS, token_at
from serve_app.demo.tiny_model import VOCAB

SIGNALS = {
    "engine_killed": ("SIGKILL", signal.SIGKILL),
    "engine_segv": ("SIGSEGV", signal.SIGSEGV),
    "engine_hangs": ("SIGSTOP: it hangs", signal.SIGSTOP),
}
STREAMS, TOKENS, BEGUN = 20, 300, 10
ITL_S = 0.1  # a token of a stream that does not move is in time within this
TOLD_S = 30.0  # for the controller to learn their outcomes


@dataclass(slots=True)
class Stream(Answer):
    """A streamed answer to ``prompt``.

    Args:
        end: one of ``benchmarks.faults.client.MEANING``.
    """

    prompt: list[int] = field(default_factory=list)
    end: str = ""

    @property
    def gaps_s(self) -> list[tuple[float, float]]:
        """Length and end of each gap between two parts."""
        return [(b - a, b) for a, b in pairwise(self.parts_s)]

    @property
    def longest_gap_s(self) -> float:
        return max((gap_s for gap_s, _ in self.gaps_s), default=0.0)


@dataclass(frozen=True, slots=True)
class Death:
    """The outcome of one death.

    Args:
        wrong: whole streams with tokens that are not those expected.
        outcomes: counts of the dead engine's requests, by the controller.
        gaps_s: longest gaps of the streams that moved, the longest first.
        others: share of the other streams' gaps within ``ITL_S``, before and after.
    """

    streams: int
    ends: dict[str, int]
    wrong: int
    outcomes: dict[str, int]
    gaps_s: Sequence[float]
    errors: tuple[str, ...]
    others: tuple[float, float]

    def __add__(self, more: "Death") -> "Death":
        """Both, one after the other; of ``others`` the mean."""
        names = self.ends.keys() | more.ends, self.outcomes.keys() | more.outcomes
        ends, outcomes = (
            {name: a.get(name, 0) + b.get(name, 0) for name in both}
            for both, a, b in zip(
                names, (self.ends, self.outcomes), (more.ends, more.outcomes), strict=True
            )
        )
        share = self.streams / (self.streams + more.streams)
        before, after = (
            share * a + (1 - share) * b for a, b in zip(self.others, more.others, strict=True)
        )
        return Death(
            self.streams + more.streams, ends, self.wrong + more.wrong, outcomes,
            sorted([*self.gaps_s, *more.gaps_s], reverse=True),
            tuple(sorted({*self.errors, *more.errors})), (before, after),
        )  # fmt: skip


def prompts(count: int) -> list[list[int]]:
    """Token ids."""
    rng = random.Random(7)
    return [[rng.randrange(3, 500) for _ in range(rng.randint(20, 60))] for _ in range(count)]


def death(there: Fleet, sent: signal.Signals, count: int, *, emulated: bool) -> Death:
    """Send one engine a signal while ``count`` streams run."""
    there.wait_whole()
    while len(engines(there)) < there.count:  # Ray Serve may not know yet of the last one's end
        time.sleep(0.5)
        there.wait_whole()
    sent_prompts = prompts(count)
    if emulated:
        expected = [[token_at(len(p) + i, VOCAB) for i in range(TOKENS)] for p in sent_prompts]
    else:
        whole, _ = asyncio.run(_streams(there, sent_prompts, None, emulated=False))
        expected = [one.tokens for one in whole]
    seen, died_s = asyncio.run(_streams(there, sent_prompts, sent, emulated=emulated))
    ends: dict[str, int] = {}
    for one in seen:
        ends[one.end] = ends.get(one.end, 0) + 1
    wrong = [
        one.end == "whole" and one.tokens != known
        for one, known in zip(seen, expected, strict=True)
    ]
    outcomes = _outcomes()
    known = sorted(seen, key=lambda one: one.longest_gap_s, reverse=True)
    moved = outcomes.get("moved", 0)
    gaps_s = [one.longest_gap_s for one in known[:moved]]
    others = in_time(known, 0.0, died_s), in_time(known[moved:], died_s, math.inf)
    errors = tuple(sorted({repr(one.error)[:200] for one in seen if one.error}))
    return Death(count, ends, sum(wrong), outcomes, gaps_s, errors, others)


def in_time(streams: Sequence[Stream], since_s: float, until_s: float) -> float:
    """The share of gaps that ended then and are at most ``ITL_S``."""
    gaps_s = [gap for one in streams for gap, end_s in one.gaps_s if since_s < end_s <= until_s]
    return sum(gap <= ITL_S for gap in gaps_s) / max(len(gaps_s), 1)


async def _streams(
    there: Fleet, sent_prompts: list[list[int]], sent: signal.Signals | None, *, emulated: bool
) -> tuple[list[Stream], float]:
    """The streams, and when the engine died by their clients' clock."""
    seen, died_s = [Stream(prompt=prompt) for prompt in sent_prompts], 0.0
    client = StockClient(URL, TIMEOUT_S)
    async with client.api:
        tasks = [asyncio.create_task(_one(client, str(i), s, emulated)) for i, s in enumerate(seen)]
        while sent is not None and not all(len(s.tokens) >= BEGUN or s.end for s in seen):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        if sent is not None:
            engines(there)[0].send_signal(sent)
            died_s = client.now_s()
        await asyncio.gather(*tasks)
    return seen, died_s


async def _one(client: StockClient, number: str, seen: Stream, emulated: bool) -> None:
    # A greedy answer of random weights would be one token again and again.
    more = {"vllm_xargs": {POSITIONS: 1}} if emulated else {"repetition_penalty": 1.3}
    await client.ask(
        number,
        seen,
        model=MODEL,
        prompt=seen.prompt,
        max_tokens=TOKENS,
        temperature=0,
        stream=True,
        extra_body={"ignore_eos": True, "return_token_ids": True, **more},
    )
    seen.end = ended(seen)


def engines(there: Fleet) -> list[psutil.Process]:
    """The EngineCores of the replicas that run, by the replicas' names."""
    found = []
    for _, pid in sorted(there.replicas(SERVER).items()):
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(pid).children(recursive=True)
            found += [c for c in children if "EngineCor" in " ".join([c.name(), *c.cmdline()])]
    return found


def _outcomes() -> dict[str, int]:
    """The counts of the last engine that died, once none of its requests is moving."""
    known: dict[str, int] = {}
    until_s = time.monotonic() + TOLD_S
    while time.monotonic() < until_s:
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            deaths = ray.get(find_controller().snapshot.remote(), timeout=10)["deaths"]
            known = deaths[-1]["outcomes"] if deaths else {}
            if known and not known.get("moving"):
                return dict(known)
        time.sleep(0.5)
    return known
