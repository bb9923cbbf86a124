"""Steps that are scheduled and whose output is not back: when each of them ends."""

from collections import deque
from collections.abc import Iterable, Sequence

from vllm.v1.core.sched.output import SchedulerOutput

from controller.models.step_time import StepModel
from replicas.engine.step_sample import step_sample

StepEtas = Sequence[tuple[SchedulerOutput, float]]


def scheduled_at(
    scheduled: deque[tuple[SchedulerOutput, float]], done: SchedulerOutput, now_s: float
) -> float:
    """When a step whose output is back was scheduled; it and those before it are taken out.

    Outputs come in the order of the steps, and of a step that computes nothing none may come.
    ``now_s`` where it is not among them.
    """
    while scheduled:
        output, scheduled_s = scheduled.popleft()
        if output is done:
            return scheduled_s
    return now_s


def ends_of(
    scheduled: Iterable[tuple[SchedulerOutput, float]],
    free_s: float,
    now_s: float,
    last_s: float,
    model: StepModel | None,
) -> StepEtas:
    """Each step that computes something, with the time at which it probably ends.

    A step lasts as long as the model predicts of its batch: one that follows a long prompt is not
    as long as that was.

    Args:
        scheduled: the oldest first, and when they were scheduled; seconds on the engine's clock.
        free_s: when the last output came: the oldest began no sooner.
        now_s: it has not ended yet.
        last_s: how long the last step took; taken where there is no model yet.
    """
    ends = []
    for output, scheduled_s in scheduled:
        if not output.total_num_scheduled_tokens:
            continue
        took_s = last_s
        if model is not None:
            sample, _ = step_sample(output, 0.0)
            took_s = model.predict_s(*sample.features)
        free_s = max(max(free_s, scheduled_s) + took_s, now_s)
        ends.append((output, free_s))
    return ends
