"""Assigns intervals between outputs to steps that are scheduled ahead.

With asynchronous scheduling EngineCore launches step k + 1 before it takes the output of step k. A
step of decodes alone is one CUDA graph, launched in 2 ms. A step with prompt tokens is launched in
pieces: 10 ms of CPU time, 30 if it is larger than the captured graphs (Llama 8B on an H100,
docs/results/gpu.md). So the cost of a prompt shows one step early, in the interval that ends with
the output of the step before, which waits for the launch. Of several larger steps in a row each
waits for the launch of the next, and the last for that of a small step.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from vllm.v1.core.sched.output import SchedulerOutput

from controller.records import StepSample
from replicas.engine.step_sample import step_sample

LONGEST_ROW = 9  # steps that are counted together, at most
NO_STEP = StepSample(0, 0, 0, 0, 0.0)
Measured = tuple[StepSample, int]
"""A step, and how many of its requests were in prefill."""


@dataclass(slots=True)
class Scheduled:
    """A step that is scheduled.

    Args:
        begun_s: engine clock when it was scheduled.
        sample: without its duration.
        prefilled: ids of its requests in prefill.
    """

    output: SchedulerOutput
    begun_s: float
    sample: StepSample
    prefilled: list[str]

    @classmethod
    def of(cls, output: SchedulerOutput, now_s: float) -> "Scheduled":
        """Read off vLLM's output."""
        return cls(output, now_s, *step_sample(output, 0.0))


def taken(scheduled: deque[Scheduled], done: SchedulerOutput) -> Scheduled | None:
    """Remove and return the step of this output, with the steps before it; None: it is unknown.

    Outputs come in the order of the steps; a step that computes nothing may have none.
    """
    for place, known in enumerate(scheduled):
        if known.output is done:
            for _ in range(place + 1):
                scheduled.popleft()
            return known
    return None


class Intervals:
    """Assigns each interval to the step that was launched in it; their sum stays.

    A prompt's launch delays the previous output, so of two consecutive steps the one with more
    prompt tokens has the longer interval. In a run of steps beyond the CUDA graphs each gets the
    interval of the step before, and the first one that of the last, if the last step has more
    prompt tokens than the first and the shorter interval. Clients saw ``StepSample.seen_s``.

    Args:
        graph_tokens: of the largest step with a CUDA graph; 0: none.
    """

    def __init__(self, graph_tokens: int = 0) -> None:
        self._graph_tokens = graph_tokens
        self._held: list[Measured] = []

    def of(self, sample: StepSample, prefills: int, ahead: Sequence[Scheduled]) -> list[Measured]:
        """The steps whose interval is known, oldest first; the newest may have to wait.

        Args:
            sample, prefills: of the step whose output has come.
            ahead: scheduled steps whose output is not back.
        """
        if not ahead and not self._held:
            return [(sample, prefills)]
        known = [*self._held, (sample, prefills)]
        following = ahead[0].sample if ahead else NO_STEP
        in_row = self._eager(sample) and self._eager(following)
        if in_row and self._held and len(known) < LONGEST_ROW:
            self._held = known
            return []
        if self._held:
            known = _moved(known)
        more = following.prefill_tokens > sample.prefill_tokens
        self._held = [known.pop()] if more else []
        return known

    def _eager(self, sample: StepSample) -> bool:
        prompts = sample.prefill_tokens
        return prompts > 0 and 0 < self._graph_tokens < sample.decodes + prompts


def _moved(row: list[Measured]) -> list[Measured]:
    """Each step with the interval of the step before, the first one with that of the last."""
    first, last = row[0][0], row[-1][0]
    if last.prefill_tokens <= first.prefill_tokens or first.duration_s <= last.duration_s:
        return row
    took_s = [last.duration_s, *(sample.duration_s for sample, _ in row[:-1])]
    for (sample, _), s in zip(row, took_s, strict=True):
        sample.seen_s, sample.duration_s = sample.seen_s or sample.duration_s, s
    return row
