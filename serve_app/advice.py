"""What would let a replica's batch grow, with what the measurements say it would bring."""

from collections.abc import Iterator

from controller.config import BatchingConfig
from controller.models.step_time import StepModel
from controller.records import BatchLimits, ReplicaReport
from serve_app.snapshot import control_of

MORE = 1.25  # a quarter more requests: worth a change, and still near the measurements


def advice_on(
    report: ReplicaReport, limits: BatchLimits, batching: BatchingConfig
) -> Iterator[str]:
    """What an operator can do, in sentences; nothing if nothing holds the replica back."""
    control = control_of(report, limits)
    if control == "off":
        yield "To apply the limits again: `brimful enforce on`."
    if control == "advice":
        yield "To apply the limits: batching.enforce: true."
    if control == "fallback":
        yield (
            "It uses the controller's limits again as soon as it receives some. If it does"
            " not, its log says why, and `ray list actors` shows the actor brimful-controller."
        )
    if limits.sla_out_of_reach:
        yield from _out_of_reach(report.model, batching)
    elif limits.reason == "memory":
        yield from _memory(report, limits)
    elif limits.reason == "sla":
        yield from _sla(report, limits, batching)
    elif limits.reason == "bound":
        yield from _bound(report, limits, batching)
    elif limits.reason == "static" and batching.policy == "static":
        yield "`batching.policy: adaptive` sizes the batch from KV memory and the SLA instead."
    elif limits.reason == "start":
        yield "Nothing to do: limits follow once some requests have been served."


def _memory(report: ReplicaReport, limits: BatchLimits) -> Iterator[str]:
    held = report.lengths.mean_held
    tenth = ""
    if held:
        tenth = f" (10% more holds about {0.1 * report.engine.kv_tokens / held:.0f} more requests)"
    yield (
        f"More KV memory allows a larger batch{tenth}: a higher gpu_memory_utilization,"
        " kv_cache_dtype: fp8, more cards per replica."
    )
    yield _one_more(limits)


def _sla(report: ReplicaReport, limits: BatchLimits, batching: BatchingConfig) -> Iterator[str]:
    model, wanted = report.model, round(limits.max_running * MORE)
    text = "A looser batching.sla.itl_ms allows a larger batch"
    if model is not None and wanted > limits.max_running and report.lengths.n:
        needed_ms = 1e3 * _step_s(model, wanted, report.lengths.mean_held)
        if batching.sla.itl_ms is not None and needed_ms > batching.sla.itl_ms:
            text += f" ({needed_ms:.0f} ms for {wanted} requests, by the measured steps)"
    yield f"{text}; so do a faster card and tensor parallelism."
    yield _one_more(limits)


def _bound(report: ReplicaReport, limits: BatchLimits, batching: BatchingConfig) -> Iterator[str]:
    cap, bounds = limits.max_running, batching.max_running
    if cap == bounds.max and cap < report.engine.max_num_seqs:
        yield "Raise batching.max_running.max, or leave it out."
    elif cap >= report.engine.max_num_seqs:
        yield (
            "If requests wait: a higher engine_kwargs.max_num_seqs, which takes a restart and"
            " some memory for larger buffers."
        )
    elif cap == bounds.min:
        yield "Lower batching.max_running.min, or loosen the SLA, which allows fewer."


def _out_of_reach(model: StepModel | None, batching: BatchingConfig) -> Iterator[str]:
    itl_ms = batching.sla.itl_ms
    if model is not None and itl_ms is not None:
        yield (
            f"A step with a single decode takes {1e3 * model.predict_s(1, 0, 0, 0):.1f} ms,"
            f" {1e3 * _step_s(model, 1, 0):.1f} ms at the percentile: raise batching.sla.itl_ms"
            f" ({itl_ms:g}) above that, or take a faster card, tensor parallelism or a smaller"
            " model."
        )
    yield (
        "More replicas do not help, because none would keep this SLA. Autoscaling leaves the"
        " number of replicas as it is."
    )


def _one_more(limits: BatchLimits) -> str:
    share = 1 / (limits.replicas + 1)
    return (
        f"One more replica takes {share:.0%} of the requests, so the queue gets shorter; steps"
        " do not."
    )


def _step_s(model: StepModel, decodes: float, held_tokens: float) -> float:
    """A step of so many decodes at the SLA's percentile, seconds."""
    return model.predict_s(decodes, decodes * held_tokens, 0, 0) * (1 + model.tail_frac)
