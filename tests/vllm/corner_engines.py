"""Replays of the corners' engines: structured output, and hybrid models."""

from collections.abc import Sequence
from dataclasses import replace

from simulator.replay.engine import Ground, replay
from simulator.virtual.plan import Plan
from simulator.virtual.trace import Trace
from simulator.workloads.requests import Request

GRAMMAR_S = 0.05  # to compile a JSON schema of some dozen fields
STATE_BLOCK = 528  # tokens: what vLLM makes of hybrid models of 7 to 9 billion parameters


def structured(
    requests: Sequence[Request], plan: Plan, ground: Ground, grammar_s: float = GRAMMAR_S
) -> Trace:
    """A replay in which each request waits ``grammar_s`` seconds for its grammar first."""
    return replay(requests, plan, replace(ground, grammar_s=grammar_s))


def hybrid(
    requests: Sequence[Request], plan: Plan, ground: Ground, block_size: int = STATE_BLOCK
) -> Trace:
    """A replay of a hybrid model with prefix caching, whose blocks have ``block_size`` tokens."""
    options = {
        "mamba_cache_mode": "align",
        "block_size": block_size,
        "enable_prefix_caching": True,
    }
    return replay(requests, replace(plan, engine=plan.engine.model_copy(update=options)), ground)
