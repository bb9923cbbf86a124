"""``static``: vLLM as started, or one fixed cap. The control arm of every comparison."""

from controller.policies.base import Decision, Memory, Seen


def decide(memory: Memory, seen: Seen) -> tuple[Decision, Memory]:
    """Cap ``max_running.max`` and budget ``static.max_num_batched_tokens``; unset: the engine's."""
    cap = seen.config.upper_bound(seen.report.engine.max_num_seqs)
    return Decision(cap, "static", seen.config.static.max_num_batched_tokens), memory
