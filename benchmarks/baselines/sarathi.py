"""``sarathi``: the static chunk of Sarathi-Serve, decodes first.

A step has ``max_num_batched_tokens`` tokens: one for every decode, the rest for prompts in the
order they came. vLLM does as much, but serves its running requests in the order they started, so a
long prompt may take the tokens of decodes behind it; Sarathi's decodes come first. ``static`` with
the same two settings is vLLM's own form of it.

Source: Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve",
OSDI 2024, algorithm 3; microsoft/sarathi-serve, sarathi/core/scheduler/sarathi_scheduler.py. Its
own defaults are a chunk of 512 tokens and 128 requests.
"""

from benchmarks.baselines.rival import Moves, Seen, Unmoved, decodes_first


class Sarathi(Unmoved):
    """Moves nothing but the decodes to the front."""

    def decide(self, seen: Seen) -> Moves:
        budget = seen.engine.max_num_batched_tokens
        return Moves(budget, seen.room, decodes_first(seen.running))
