"""Which step an interval between two outputs counts for, where a step is scheduled ahead.

With asynchronous scheduling EngineCore launches step k + 1 before it takes the output of step k.
Decodes alone are one CUDA graph, launched in 2 ms; a step with prompt tokens is launched piece by
piece, which takes the CPU 10 ms, and 30 where it is larger than vLLM captures graphs (Llama 8B on
an H100, docs/results/gpu.md). What a prompt costs is therefore seen one step early: in the interval
that ends with the output of the step before, whose tokens wait for the launch. Of several larger
steps in a row each waits for the launch of the next, and the last one for that of a small step.
"""

from collections.abc import Sequence
from dataclasses import replace

from vllm.v1.core.sched.output import SchedulerOutput

from controller.records import StepSample
from replicas.engine.step_sample import step_sample

LONGEST_ROW = 9  # steps that are counted together, at most: 8 wait for the ninth
NO_STEP = StepSample(0, 0, 0, 0, 0.0)
Measured = tuple[StepSample, int]
"""A step, and how many of its requests were in prefill."""


class Intervals:
    """Counts intervals for the steps that were launched in them; their sum stays what it was.

    A prompt's launch delays the previous output, so of two steps in a row the one with more prompt
    tokens has the longer interval. In a row of steps beyond the CUDA graphs each has the interval
    of the step before, the first one the last, where the last step has more prompt tokens than the
    first and the shorter interval. What clients saw is told beside it (``StepSample.seen_s``).

    Args:
        graph_tokens: of the largest step that CUDA graphs were captured for; 0: of none.
    """

    def __init__(self, graph_tokens: int = 0) -> None:
        self._graph_tokens = graph_tokens
        self._held: list[Measured] = []
        self._ahead: tuple[SchedulerOutput | None, StepSample, list[str]] = None, NO_STEP, []

    def sample(self, done: SchedulerOutput, duration_s: float) -> tuple[StepSample, list[str]]:
        """``step_sample``; what was read as the step before ended is not read again."""
        known, sample, prefilled = self._ahead
        if known is not done:
            return step_sample(done, duration_s)
        return StepSample(*sample.features, duration_s, started=sample.started), prefilled

    def of(
        self, sample: StepSample, prefills: int, ahead: Sequence[tuple[SchedulerOutput, float]]
    ) -> list[Measured]:
        """The steps that are known by now, the oldest first; the newest may have to wait.

        Args:
            sample, prefills: of the step whose output has come.
            ahead: steps that are scheduled and whose output is not back.
        """
        known = [*self._held, (sample, prefills)]
        self._ahead = (
            (ahead[0][0], *step_sample(ahead[0][0], 0.0)) if ahead else (None, NO_STEP, [])
        )
        following = self._ahead[1]
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
    """Each step of a row with the interval before its own, the first one with the last."""
    first, last = row[0][0], row[-1][0]
    if last.prefill_tokens <= first.prefill_tokens or first.duration_s <= last.duration_s:
        return row
    took_s = [last.duration_s, *(sample.duration_s for sample, _ in row[:-1])]
    return [
        (replace(sample, duration_s=s, seen_s=sample.seen_s or sample.duration_s), prefills)
        for (sample, prefills), s in zip(row, took_s, strict=True)
    ]
