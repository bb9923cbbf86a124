"""What a replica publishes for routing: the room it has left under the limits that it keeps to."""

import math
from typing import Any

from controller.capacity import capacity_per_s, typical_itl_s
from controller.config import BatchingConfig
from controller.models.step_time import StepModel
from controller.records import EngineReport

NO_KV_TOKENS = 2**40  # free where a model keeps no KV memory, which limits nobody there
PREFILL = "prefill"  # 1: it computes prompts for others; what it has still to decode ends there
DEAD = "dead"  # 1: its engine is; it is to be sent nothing
KEY = "brimful"  # among Ray Serve's routing stats, which Ray Serve LLM uses too


def routing_stats(
    report: EngineReport, config: BatchingConfig, taken_unix_s: float
) -> dict[str, Any]:
    """``serve_app.routing.replica_load.ReplicaLoad`` by field; what is not known is left out.

    Rates are this replica's own, by the model of its own steps: one that is slow says so.

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
    """How many decodes a step of ``itl_s`` has without prompts; None: no request ended yet."""
    engine, lengths = report.engine, report.lengths
    if not lengths.n:
        return None
    most, held = float(engine.max_num_seqs), lengths.mean_held
    if engine.kv_tokens and held:
        most = min(most, engine.kv_tokens / held)
    each_s = model.c1 + model.c2 * held
    if each_s > 0:  # one that was loaded computes the last token of its prompt
        left_s = typical_itl_s(model, itl_s) - model.c0 - model.mixed_s
        most = min(most, max(left_s, 0.0) / each_s)
    return max(int(most), 1)


def prefill_tokens_per_s(report: EngineReport, model: StepModel, itl_s: float | None) -> float:
    """How fast prompts are computed beside the requests that decode now, tokens/s.

    P prompt tokens in a step that takes c0 + c1 B + c2 K + (c3 + c4 m/2) P, where P is what the
    token budget leaves, or where ``itl_s`` is kept, what fits in a step of that; at least a block,
    as prompts never stand still. m is the mean prompt, half of it the context of its mean chunk
    where nothing of it is cached.

    Args:
        itl_s: what steps are sized to, seconds; None: by the token budget alone.
    """
    engine, lengths = report.engine, report.lengths
    decodes = report.decoding
    kv = min(decodes * lengths.mean_held, float(engine.kv_tokens))
    beside_s = model.predict_s(decodes, kv, 0, 0)
    # A chunk's context: all that is cached, and on average a half of what is not.
    per_token_s = model.c3 + model.c4 * (2 * lengths.mean_input - lengths.mean_computed) / 2
    most = float(max(engine.max_num_batched_tokens - report.decode_tokens, 0))
    if itl_s is not None:
        left_s = typical_itl_s(model, itl_s) - beside_s
        most = min(most, left_s / per_token_s if per_token_s else math.inf)
    tokens = max(most, float(engine.block_tokens))
    step_s = beside_s + per_token_s * tokens
    return tokens / step_s if step_s > 0 else 0.0
