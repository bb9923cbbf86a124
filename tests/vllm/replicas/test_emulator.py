"""The emulated accelerator's own clock: asleep for what the profile says, and no longer."""

from pathlib import Path

import pytest
from vllm import SamplingParams

from replicas.emulator.executor import EmulatedExecutor, Pace
from serve_app.demo.client import END, LENGTH
from tests.vllm.engines import engine, scheduler
from tests.vllm.harness import batching


def test_the_hosts_work_hides_in_steps_and_what_it_takes_beyond_one_is_lost() -> None:
    now_s = [100.0]

    def work(seconds: float) -> None:
        now_s[0] += seconds

    pace = Pace(lambda: now_s[0], work)
    for _ in range(10):
        pace.step(0.05)
        work(0.04)
    assert now_s[0] == pytest.approx(100 + 10 * 0.05 + 0.04)
    work(0.03)
    pace.step(0.05)
    assert now_s[0] == pytest.approx(100.57)  # it is over by now
    pace.step(0.05)
    assert now_s[0] == pytest.approx(100.62)


@pytest.mark.engine
def test_an_answer_ends_where_its_client_told_the_accelerator(tiny_llama: Path) -> None:
    # KV memory for 480 tokens: some lose their blocks on the way, and go on where they were.
    settings = batching()
    settings["brimful"]["emulate"] = {
        "profile": "paper-fig3",
        "time_scale": 0.001,
        "disturbances": {
            "pauses": [{"share": 0.1, "mean_s": 0.05}],
            "slow": [{"share": 0.2, "factor": 2, "mean_s": 1}],
            "encoder": {"share": 0.5, "duration_s": 0.08},
        },
    }
    asked = [5 + 7 * k for k in range(16)]
    params = [
        SamplingParams(
            max_tokens=256, ignore_eos=True, stop_token_ids=[END], extra_args={LENGTH: n}
        )
        for n in asked
    ]
    with engine(
        tiny_llama,
        ours=True,
        additional_config=settings,
        distributed_executor_backend=EmulatedExecutor,
        num_gpu_blocks_override=16,
        max_model_len=384,
    ) as llm:
        answers = llm.generate(["a river"] * 16, params, use_tqdm=False)
        report = scheduler(llm).exchange(None, "replica", "group")
    said = [list(a.outputs[0].token_ids) for a in answers]
    assert [len(tokens) for tokens in said] == asked
    assert all(tokens.index(END) == len(tokens) - 1 for tokens in said)
    assert {a.outputs[0].finish_reason for a in answers} == {"stop"}
    assert report["finished"] == 16 and report["preemptions"] > 0
