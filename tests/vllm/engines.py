"""Real vLLM engines inside the test's own process, their scheduler within reach between steps."""

import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from vllm import LLM, RequestOutput, SamplingParams
from vllm.config import VllmConfig
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import core

from controller.records import EngineReport, to_wire
from replicas.engine import channel
from replicas.engine.scheduler import DynamicBatchScheduler
from tests.vllm.harness import batching, limits

# Down to one and back up, with chunks that grow and shrink; moved every few steps.
CAPS = ((16, None), (1, 40), (7, None), (2, 48), (12, 33))
STEPS_PER_CAP = 5

cpu_defaults = CpuPlatform.check_and_update_config


class Records:
    """A scheduler that remembers its outputs, and how many requests ran at each."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.steps: list[tuple[SchedulerOutput, int]] = []

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        output = super().schedule(*args, **kwargs)
        self.steps.append((output, len(self.running)))
        return output


class Recording(Records, DynamicBatchScheduler):
    """Ours."""

    fails_open = False  # an error fails a test


@contextmanager
def engine(
    model: Path, *, ours: bool, async_scheduling: bool = False, **args: Any
) -> Iterator[LLM]:
    """A ``vllm.LLM`` with our scheduler or with vLLM's own; shut down at the end."""
    sizes = {"max_num_seqs": 16, "max_num_batched_tokens": 64, "max_model_len": 512}
    cache = {"block_size": 32, "num_gpu_blocks_override": 512}
    # In float32, the size of a batch does not decide which of two near tokens wins.
    defaults = {"enforce_eager": True, "dtype": "float32", **sizes, **cache}
    if ours:
        args = {"scheduler_cls": Recording, "additional_config": batching(), **args}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

        def check(cls: type[CpuPlatform], config: VllmConfig) -> None:
            wanted = config.parallel_config.distributed_executor_backend
            cpu_defaults(config)
            # vLLM would start a process for its worker.
            config.parallel_config.distributed_executor_backend = wanted or "uni"
            # It switches it off because it gains nothing there; the runner can do it.
            config.scheduler_config.async_scheduling = async_scheduling

        patch.setattr(CpuPlatform, "check_and_update_config", classmethod(check))
        llm = LLM(str(model), **defaults | args)
    try:
        yield llm
    finally:
        with pytest.MonkeyPatch.context() as patch:
            # What engines of one process share stays for the others.
            patch.setattr(core, "cleanup_dist_env_and_memory", gc.collect)
            llm.llm_engine.engine_core.shutdown()


def scheduler(llm: LLM) -> Any:
    """The engine's scheduler."""
    return llm.llm_engine.engine_core.engine_core.scheduler


def generate(
    llm: LLM, prompts: list[str], params: SamplingParams | list[SamplingParams], **fields: Any
) -> list[RequestOutput]:
    """All answers in the order of the prompts; where the scheduler is ours, its limits move."""
    ids = llm.enqueue(prompts, params, use_tqdm=False, **fields)
    moving = isinstance(scheduler(llm), DynamicBatchScheduler)
    caps = itertools.cycle(CAPS)
    done: dict[str, RequestOutput] = {}
    for step in itertools.count():
        if not llm.llm_engine.has_unfinished_requests():
            break
        if moving and step % STEPS_PER_CAP == 0:
            wire = to_wire(limits(*next(caps)))
            getattr(llm.llm_engine.engine_core.engine_core, channel.METHOD)(wire, "r", "g")
        done |= {o.request_id: o for o in llm.llm_engine.step() if o.finished}
    by_number = {int(request_id.split("-")[0]): output for request_id, output in done.items()}
    return [by_number[int(request_id.split("-")[0])] for request_id in ids]


def tokens(outputs: list[RequestOutput]) -> list[list[int]]:
    """The answers' token ids."""
    return [list(output.outputs[0].token_ids) for output in outputs]


def report(llm: LLM) -> EngineReport:
    """What the engine knows now."""
    return channel.read_report(llm)
