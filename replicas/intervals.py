"""Which step an interval between two outputs counts for, where a step is scheduled ahead.

With asynchronous scheduling EngineCore launches step k + 1 before it takes the output of step k.
Decodes alone are one CUDA graph, launched in 2 ms; a step with prompt tokens is launched piece by
piece, which takes the CPU 10 ms, and 30 where it is larger than vLLM captures graphs (Llama 8B on
an H100, docs/results/gpu.md). What a prompt costs is therefore seen one step early: in the interval
that ends with the output of the step before, whose tokens wait for the launch.
"""

from collections.abc import Sequence
from dataclasses import replace

from vllm.v1.core.sched.output import SchedulerOutput

from controller.records import StepSample
from replicas.step_sample import step_sample

Measured = tuple[StepSample, int]
"""A step, and how many of its requests were in prefill."""


class Intervals:
    """Counts intervals: of two steps in a row, one with more prompt tokens has the longer one.

    So the sum of all intervals stays what it was. What clients saw is told beside it.
    """

    def __init__(self) -> None:
        self._held: Measured | None = None

    def of(
        self, sample: StepSample, prefills: int, ahead: Sequence[tuple[SchedulerOutput, float]]
    ) -> list[Measured]:
        """The steps that are known by now, the oldest first; the newest may have to wait.

        Args:
            sample, prefills: of the step whose output has come.
            ahead: steps that are scheduled and whose output is not back.
        """
        known: list[Measured] = []
        if self._held is not None:
            before, of_before = self._held
            self._held = None
            more = sample.prefill_tokens > before.prefill_tokens
            if more and sample.duration_s < before.duration_s:
                longer_s, shorter_s = before.duration_s, sample.duration_s
                before = replace(before, duration_s=shorter_s, seen_s=before.seen_s or longer_s)
                sample = replace(sample, duration_s=longer_s, seen_s=shorter_s)
            known.append((before, of_before))
        if ahead and step_sample(ahead[0][0], 0.0)[0].prefill_tokens > sample.prefill_tokens:
            self._held = sample, prefills
        else:
            known.append((sample, prefills))
        return known
