"""What is counted from step to step is what a count over all running requests gives."""

from typing import Any

import pytest
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from replicas.engine.scheduler import DynamicBatchScheduler
from tests.vllm.harness import batching
from tests.vllm.lives import Life, Lived, lived


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("number", range(metafunc.config.getoption("lives")))


def in_prefill(request: Request) -> bool:
    """Whether more is to be computed of a request than its last token."""
    there = request.num_tokens + request.num_output_placeholders
    drafts = len(request.spec_token_ids)
    first = request.num_computed_tokens < request.num_prompt_tokens
    return first or request.num_computed_tokens + 1 + drafts < there


class Counted(Lived):
    """Counts anew before every step."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.last: SchedulerOutput | None = None
        self.then: dict[str, Any] = {}  # each request's status, once that was scheduled
        self.wrong: list[tuple[Any, ...]] = []
        self.quiet = 0

    def step(self) -> SchedulerOutput:
        if self.last is not None:
            self.compare(self.last)
        self.last = super().step()
        return self.last

    def _run(self, scheduled: SchedulerOutput) -> ModelRunnerOutput:
        self.then = {name: r.status for name, r in self.scheduler.requests.items()}
        return super()._run(scheduled)

    def compare(self, last: SchedulerOutput) -> None:
        counts, running = self.scheduler._counts, self.scheduler.running
        prefilling = [r.request_id for r in running if in_prefill(r)]
        known = [r.request_id for r in counts.prefilling]
        decodes = [r for r in running if not in_prefill(r)]
        # What has left or changed since is counted for one step more; one that was in no step, not
        # at all.
        requests = self.scheduler.requests
        quiet = all(r in requests and requests[r].status == was for r, was in self.then.items())
        self.quiet += quiet
        some = [r for r in decodes if r.request_id in last.num_scheduled_tokens]
        kv = sum(r.num_computed_tokens for r in some)
        drafted = sum(map(len, last.scheduled_spec_decode_tokens.values()))
        right = 0 <= kv - counts.kv_tokens <= drafted
        if set(known) != set(prefilling) or (quiet and not right):
            self.wrong.append((known, prefilling, kv, counts.kv_tokens, drafted))


def test_decodes_and_their_memory_are_counted(tiny_llama, number):
    life = Life(number)
    block = batching(policy="adaptive", sla={"itl_ms": 20, "ttft_ms": 500})
    rig = Counted(tiny_llama, life, DynamicBatchScheduler, block)
    lived(life, rig)
    assert rig.quiet > 20
    assert not rig.wrong
