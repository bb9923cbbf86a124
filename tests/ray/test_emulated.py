"""The emulated accelerator under the whole stack, against the replay of the same requests."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import requests
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from controller.config import Sla
from controller.records import ReplicaReport
from replicas.profiles.profile_file import load_profile
from serve_app.demo.client import Answer, Ask, prompts, send
from serve_app.record import caller
from simulator.replay.engine import Ground, replay
from simulator.virtual.plan import parse_policy
from simulator.workloads.requests import Request
from tests.ray.conftest import base_url
from tests.ray.control import replicas, until
from tests.ray.emulated import ENGINE, KV_TOKENS, PROFILE, SCALE

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("emulated")]

WARM_UP = [Ask("a river", 4)] * 4  # the first is cold
# All at once, all as long, and each of its own length.
BURST = [Ask(p, 70) for p in prompts(110, (40, 40), seed=11)]
MIXED = [Ask(p, 30 + 7 * i % 60) for i, p in enumerate(prompts(100, (20, 90), seed=7))]


async def report(finished: int) -> ReplicaReport:
    """The replica's report once it is idle and so many requests have finished."""

    def last() -> ReplicaReport:
        (replica,) = replicas("emulated").values()
        return replica["report"]

    def idle() -> bool:
        now = last()
        return now.finished >= finished and not now.running + now.waiting

    await until(f"{finished} finished requests", idle)
    return last()


async def serve(asks: list[Ask]) -> tuple[list[float], int]:
    """Send these requests; when each was sent, in the profile's time, and the engine's steps."""
    before = await report(0)
    ended_s: dict[int, float] = {}

    def note(answer: Answer) -> None:
        ended_s[id(answer)] = time.perf_counter()

    answers = await send(base_url("emulated"), "tiny-emulated", asks, done=note)
    assert [a.error or a.status for a in answers if not a.whole] == []
    assert [a.tokens for a in answers] == [ask.max_tokens for ask in asks]
    after = await report(before.finished + len(asks))
    sent_s = [ended_s[id(a)] - a.total_s for a in answers]
    return [(s - min(sent_s)) / SCALE for s in sent_s], _steps(after) - _steps(before)


def _steps(seen: ReplicaReport) -> int:
    return sum(asdict(seen.bound_steps).values())


def replayed(
    tokenizer: PreTrainedTokenizerBase, sent: list[tuple[list[Ask], list[float]]]
) -> list[int]:
    """The steps that the replay takes for each group of requests, sent as they were sent.

    One replay: what the policy learned of one group it brings to the next. The four short requests
    that warm the stack up let it admit the whole burst, which a policy that knows nothing does not.
    """
    pause_s = 100.0
    requests_ = [
        Request(k * pause_s + sent_s, len(tokenizer(ask.prompt)["input_ids"]), n, n)
        for k, (asks, times_s) in enumerate(sent)
        for ask, sent_s in sorted(zip(asks, times_s, strict=True), key=lambda pair: pair[1])
        for n in [ask.max_tokens]
    ]
    plan = parse_policy(f"adaptive:exchange_hz={SCALE}", Sla(), ENGINE)
    trace = replay(requests_, plan, Ground(load_profile(PROFILE).with_kv_tokens(KV_TOKENS)))
    group = (trace.column("end_s") // pause_s).astype(int)
    return np.bincount(group, minlength=len(sent)).tolist()


async def test_what_it_serves_is_marked_as_emulated() -> None:
    roots: list[str] = []

    def answered() -> bool:
        with contextlib.suppress(requests.RequestException):
            answer = requests.get(f"{base_url('emulated')}/models", timeout=30)
            answer.raise_for_status()  # HAProxy may learn of the application after it runs
            roots.extend(card["root"] for card in answer.json()["data"])
        return bool(roots)

    await until("the models", answered)
    assert roots == [f"emulated:{PROFILE}"]


async def test_it_has_the_kv_memory_it_was_given() -> None:
    assert (await report(0)).engine.kv_tokens == KV_TOKENS


async def test_it_serves_in_as_many_steps_as_the_replay(
    model_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    # How fast it is compared with the replay: docs/results/http.md.
    groups = {"warm-up": WARM_UP, "burst": BURST, "mixed": MIXED}
    served = [await serve(asks) for asks in groups.values()]
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    sent = [(asks, times_s) for asks, (times_s, _) in zip(groups.values(), served, strict=True)]
    ratios = {
        name: steps / said
        for name, (_, steps), said in zip(groups, served, replayed(tokenizer, sent), strict=True)
    }
    for name in "burst", "mixed":
        record_testsuite_property(f"{name}: steps, stack over replay", f"{ratios[name]:.3f}")
    assert (ratios["burst"], ratios["mixed"]) == pytest.approx((1, 1), abs=0.1)


async def test_what_is_captured_is_what_was_asked(model_path: Path) -> None:
    (name,) = replicas("emulated")
    call = caller(name)
    assert call("requests", "a test", True) == {"requests": [], "lost": 0, "fresh": True}
    asks, before_s = MIXED[:20], time.time()
    await serve(asks)
    found = call("requests", "a test", False)["requests"]
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    asked = sorted((len(tokenizer(ask.prompt)["input_ids"]), ask.max_tokens) for ask in asks)
    assert sorted((one["input_tokens"], one["output_tokens"]) for one in found) == asked
    assert not any(one["cancelled"] or one["prefix"] for one in found)  # none has 512 tokens
    assert all(before_s <= one["arrival_s"] <= time.time() for one in found)
    assert call("requests", "another", True) == {"requests": [], "lost": 0, "fresh": True}
    call("requests", "another", False)
