"""The emulated accelerator under the whole stack, against the replay of the same requests."""

from pathlib import Path

import pytest
import requests
from transformers import AutoTokenizer

from benchmarks.engine import Ground, replay
from benchmarks.load import Ask, prompts, send
from benchmarks.measure import summarise
from benchmarks.policies import EngineOptions, parse_policy
from benchmarks.requests import Request
from controller.config import Sla
from replicas.profile_file import load_profile
from tests.ray.conftest import Deploy, application, base_url
from tests.ray.control import replicas, until

pytestmark = pytest.mark.cluster

# Steps of 80 to 150 ms: what HTTP and the host's own work cost on shared cores hides within them.
SCALE = 3.0
PROFILE, KV_TOKENS, SLA = "paper-fig3", 8000, Sla(itl_ms=50)
ENGINE = EngineOptions(max_num_seqs=48, max_num_batched_tokens=512, block_size=16)
ASKS = [Ask(p, 30 + 7 * i % 60, at_s=i / 4) for i, p in enumerate(prompts(100, (20, 90), seed=7))]


@pytest.fixture
def emulated(deploy: Deploy, model_path: Path) -> None:
    """One replica on an emulated accelerator."""
    app = application(
        "emulated",
        model_path,
        deployment={"num_replicas": 1},
        batching={"policy": "adaptive", "sla": {"itl_ms": SLA.itl_ms}},
        emulate={"profile": PROFILE, "kv_tokens": KV_TOKENS, "time_scale": SCALE},
    )
    app["args"]["llm_configs"][0]["engine_kwargs"] = {
        **ENGINE.model_dump(exclude={"watermark"}),
        "max_model_len": 512,
    }
    deploy(app)


@pytest.mark.usefixtures("emulated")
def test_what_it_serves_is_marked_as_emulated() -> None:
    card = requests.get(f"{base_url('emulated')}/models", timeout=30).json()["data"][0]
    assert card["root"] == f"emulated:{PROFILE}"


@pytest.mark.usefixtures("emulated")
async def test_it_is_as_fast_as_the_replay_says(model_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    await send(base_url("emulated"), "tiny-emulated", [Ask("a river", 4)] * 4)  # the first is cold
    await until("the replica", lambda: bool(replicas("emulated")))
    (before,) = (r["report"].itl for r in replicas("emulated").values())
    answers = await send(base_url("emulated"), "tiny-emulated", ASKS)
    assert all(answer.whole for answer in answers)
    (after,) = (r["report"].itl for r in replicas("emulated").values())
    took_s = max(ask.at_s + a.total_s for ask, a in zip(ASKS, answers, strict=True))
    tokens_per_s = sum(answer.tokens for answer in answers) / took_s * SCALE
    itl_ms = (after.since(before).mean_s or 0) * 1000 / SCALE

    same = [
        Request(ask.at_s / SCALE, len(tokenizer(ask.prompt)["input_ids"]), ask.max_tokens)
        for ask in ASKS
    ]
    ground = Ground(load_profile(PROFILE).with_kv_tokens(KV_TOKENS))
    said = summarise("", replay(same, parse_policy("adaptive", SLA, ENGINE), ground), SLA)
    assert tokens_per_s == pytest.approx(said.output_tokens_per_s, rel=0.1)
    assert itl_ms == pytest.approx(said.itl_ms.mean, rel=0.1)
