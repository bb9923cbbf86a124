"""A replica's numbers for routing: its headroom under the present limits."""

import math
from typing import Any

from controller.capacity import capacity_per_s, typical_itl_s
from controller.config import BatchingConfig
from controller.models.step_time import StepModel
from controller.records import EngineReport

NO_KV_TOKENS = 2**40  # free for a model without KV memory, which is no limit
PREFILL = "prefill"  # 1: it computes prompts for others; decodes that it has still end there
DEAD = "dead"  # 1: its engine is dead; it must get nothing
KEY = "brimful"  # among Ray Serve's routing stats, which Ray Serve LLM uses too


def routing_stats(
    report: EngineReport, config: BatchingConfig, taken_unix_s: float
) -> dict[str, Any]:
    """``serve_app.routing.replica_load.ReplicaLoad`` by field; unknown ones are left out.

    Rates follow from this replica's own step-time model, so a slow replica publishes lower ones.

    Args:
        taken_unix_s: when the engine was asked for ``report``.
    """
    engine, lengths = report.engine, report.lengths
    held = report.max_running if report.enforced else engine.max_num_seqs
    stats: dict[str, Any] = {
        "taken_unix_s": round(taken_unix_s, 3),
        "running": report.running,
        "waiting": report.waiting,
        "max_running": held,
        "most_running": engine.max_num_seqs,
        "prompt_backlog_tokens": report.prompt_backlog_tokens,
        "kv_backlog_tokens": report.kv_backlog_tokens,
        "kv_free_tokens": _free_tokens(report),
        "written_tokens": report.written_tokens,
        "arrivals": report.arrivals,
        "led": report.mode != "fallback",
    }
    if lengths.n:
        stats["mean_prompt_tokens"] = round(lengths.mean_input, 1)
        stats["mean_output_tokens"] = round(lengths.mean_output, 1)
        stats["cached_frac"] = round(1 - lengths.computed_frac, 3)
    model = report.model
    if model is not None:
        sla_itl_s = config.sla.itl_s if report.enforced and config.policy == "adaptive" else None
        itl_s = sla_itl_s
        stats["prefill_tokens_per_s"] = round(prefill_tokens_per_s(report, model, itl_s), 1)
        if itl_s is not None:
            if most := most_decodes(report, model, itl_s):
                stats["most_decodes"] = most
            unbound = prefill_tokens_per_s(report, model, None)
            stats["most_prefill_tokens_per_s"] = round(unbound, 1)
        drain = capacity_per_s(model, lengths, held, None)
        if drain:
            stats["drain_per_s"] = round(drain, 4)
    return stats


def _free_tokens(report: EngineReport) -> int:
    kv_tokens = report.engine.kv_tokens
    return max(kv_tokens - report.kv_used_tokens, 0) if kv_tokens else NO_KV_TOKENS


def most_decodes(report: EngineReport, model: StepModel, itl_s: float) -> int | None:
    """Decodes in a step of ``itl_s`` without prompts; None: no request has ended yet."""
    engine, lengths = report.engine, report.lengths
    if not lengths.n:
        return None
    most, held = float(engine.max_num_seqs), lengths.mean_held
    if engine.kv_tokens and held:
        most = min(most, engine.kv_tokens / held)
    each_s = model.c1 + model.c2 * held
    if each_s > 0:  # after a KV transfer the last prompt token is computed here
        left_s = typical_itl_s(model, itl_s) - model.c0 - model.mixed_s
        most = min(most, max(left_s, 0.0) / each_s)
    return max(int(most), 1)


def prefill_tokens_per_s(report: EngineReport, model: StepModel, itl_s: float | None) -> float:
    """Rate of prompt tokens with the present decodes, tokens/s.

    P prompt tokens in a step of c0 + c1 B + c2 K + (c3 + c4 m/2) P. P is what the token budget
    leaves, or with ``itl_s`` what fits into such a step; at least a block, as prompts never stall.
    m is the mean prompt; without prefix hits, m / 2 is the context of its mean chunk.

    Args:
        itl_s: target of steps, seconds; None: only the token budget.
    """
    engine, lengths = report.engine, report.lengths
    decodes = report.decoding
    kv = min(decodes * lengths.mean_held, float(engine.kv_tokens))
    beside_s = model.predict_s(decodes, kv, 0, 0)
    # A chunk's context: all cached tokens, and on average half of the others.
    per_token_s = model.c3 + model.c4 * (2 * lengths.mean_input - lengths.mean_computed) / 2
    most = float(max(engine.max_num_batched_tokens - report.decode_tokens, 0))
    if itl_s is not None:
        left_s = typical_itl_s(model, itl_s) - beside_s
        most = min(most, left_s / per_token_s if per_token_s else math.inf)
    tokens = max(most, float(engine.block_tokens))
    step_s = beside_s + per_token_s * tokens
    return tokens / step_s if step_s > 0 else 0.0
