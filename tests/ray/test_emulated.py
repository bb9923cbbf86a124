"""The emulated accelerator under the whole stack, against the replay of the same requests."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from benchmarks.engine import Ground, replay
from benchmarks.load import Answer, Ask, prompts, send
from benchmarks.policies import EngineOptions, parse_policy
from benchmarks.requests import Request
from controller.config import Sla
from controller.records import ReplicaReport
from replicas.profile_file import load_profile
from tests.ray.conftest import Deploy, application, base_url
from tests.ray.control import replicas, until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("emulated")]

# Steps of 80 to 150 ms: what HTTP and the host's own work cost on shared cores hides within them.
SCALE = 3
PROFILE, SLA = "paper-fig3", Sla(itl_ms=50)
ENGINE = EngineOptions(max_num_seqs=48, max_num_batched_tokens=512, block_size=32)
KV_TOKENS = 5120  # about 40 requests of the burst: memory binds there
WARM_UP = [Ask("a river", 4)] * 4  # the first is cold
# All at once and all as long; and one after the other, each of its own length.
BURST = [Ask(p, 70) for p in prompts(110, (40, 40), seed=11)]
MIXED = [Ask(p, 30 + 7 * i % 60, at_s=i / 4) for i, p in enumerate(prompts(100, (20, 90), seed=7))]


@dataclass(frozen=True)
class Seen:
    """What became of some requests, in the time of the profile.

    Args:
        sent_s: when the client sent each of them, from the first on.
        took_s: from the first sent to the last ended.
        itl_ms: mean time between tokens, as the engine counts it.
    """

    sent_s: list[float]
    took_s: float
    itl_ms: float


@pytest.fixture
def emulated(deploy: Deploy, model_path: Path) -> None:
    """One replica on an emulated accelerator."""
    app = application(
        "emulated",
        model_path,
        deployment={"num_replicas": 1},
        # An exchange is not slowed, so it is as much rarer; the replay has it at its own rate.
        batching={"policy": "adaptive", "sla": {"itl_ms": SLA.itl_ms}, "exchange_hz": 1},
        emulate={"profile": PROFILE, "kv_tokens": KV_TOKENS, "time_scale": SCALE},
    )
    app["args"]["llm_configs"][0]["engine_kwargs"] = {**ENGINE.model_dump(), "max_model_len": 512}
    deploy(app)


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


async def seen(asks: list[Ask]) -> Seen:
    """Send these requests and measure."""
    before = await report(0)
    ended_s: dict[int, float] = {}

    def note(answer: Answer) -> None:
        ended_s[id(answer)] = time.perf_counter()

    answers = await send(base_url("emulated"), "tiny-emulated", asks, done=note)
    assert [a.error or a.status for a in answers if not a.whole] == []
    assert [a.tokens for a in answers] == [ask.max_tokens for ask in asks]
    after = await report(before.finished + len(asks))
    sent_s = [ended_s[id(a)] - a.total_s for a in answers]
    return Seen(
        [(s - min(sent_s)) / SCALE for s in sent_s],
        (max(ended_s.values()) - min(sent_s)) / SCALE,
        (after.itl.since(before.itl).mean_s or 0) * 1000 / SCALE,
    )


def replayed(tokenizer: PreTrainedTokenizerBase, sent: list[tuple[list[Ask], Seen]]) -> list[Seen]:
    """The replay of all that was sent, as it was sent, each group with an idle pause after it.

    One replay: what the policy learned of one group it brings to the next. The four short requests
    that warm the stack up let it admit the whole burst, which a policy that knows nothing does not.
    """
    starts_s, same = [0.0], list[Request]()
    for asks, real in sent:
        same += sorted(
            (
                Request(starts_s[-1] + sent_s, len(tokenizer(ask.prompt)["input_ids"]), n, n)
                for ask, sent_s in zip(asks, real.sent_s, strict=True)
                for n in [ask.max_tokens]
            ),
            key=lambda request: request.arrival_s,
        )
        starts_s.append(starts_s[-1] + 2 * real.took_s + 10)
    plan = parse_policy(f"adaptive:exchange_hz={SCALE}", SLA, ENGINE)
    trace = replay(same, plan, Ground(load_profile(PROFILE).with_kv_tokens(KV_TOKENS)))
    end_s, step_s, decodes = map(trace.column, ("end_s", "duration_s", "decodes"))
    groups = []
    for (_, real), since_s, until_s in zip(sent, starts_s, starts_s[1:], strict=False):
        here = (since_s < end_s) & (end_s < until_s)
        itl_s = step_s[here] @ decodes[here] / decodes[here].sum()
        groups.append(Seen(real.sent_s, end_s[here].max() - since_s, itl_s * 1000))
    return groups


async def test_what_it_serves_is_marked_as_emulated() -> None:
    roots: list[str] = []

    def answered() -> bool:
        with contextlib.suppress(requests.RequestException):
            answer = requests.get(f"{base_url('emulated')}/models", timeout=30)
            answer.raise_for_status()  # HAProxy may hear of the application after it runs
            roots.extend(card["root"] for card in answer.json()["data"])
        return bool(roots)

    await until("the models", answered)
    assert roots == [f"emulated:{PROFILE}"]


async def test_it_has_the_kv_memory_it_was_given() -> None:
    assert (await report(0)).engine.kv_tokens == KV_TOKENS


async def test_it_is_as_fast_as_the_replay_says(
    model_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    groups = {"warm-up": WARM_UP, "burst": BURST, "mixed": MIXED}
    real = [await seen(asks) for asks in groups.values()]
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    said = replayed(tokenizer, list(zip(groups.values(), real, strict=True)))
    for name, stack, virtual in list(zip(groups, real, said, strict=True))[1:]:
        throughput, itl = virtual.took_s / stack.took_s, stack.itl_ms / virtual.itl_ms
        record_testsuite_property(
            f"{name}: output tokens/s, stack over replay", f"{throughput:.3f}"
        )
        record_testsuite_property(f"{name}: mean ITL, stack over replay", f"{itl:.3f}")
        assert throughput == pytest.approx(1, abs=0.1)
        assert itl == pytest.approx(1, abs=0.1)
