"""``ppas``: Prefill-Pressure Adaptive Scheduling, two token budgets.

    pressure = prefills >= 2 and decodes > 0,   budget = B_cap under pressure, else B_max

with prefills = running and waiting requests whose prompt is not computed, decodes = running ones
whose prompt is. P-PAS+ adds: or (one running prefill, decodes >= 2, and at least
``large_prefill_tokens`` left of it). The order of service is vLLM's.

Source: Saemann, "P-PAS: Prefill-Pressure Adaptive Scheduling for Long-Context LLM Serving", arXiv
2608.15171; vLLM RFC 52906 (2026-08-19); TimoSaemann/ppas-vllm at 3e4bf10b,
scheduler/ppas_vllm_0.27.1.patch. B_max is the engine's ``max_num_batched_tokens``, 16,384 in the
paper; B_cap is 2,048 there and 1,280 for the model that P-PAS+ was shown on, with 65,536 tokens.
"""

from benchmarks.baselines.options import PpasOptions
from benchmarks.baselines.rival import Moves, Seen, Unmoved


class Ppas(Unmoved):
    """Lowers the budget where prompts compete with decodes."""

    def __init__(self, options: PpasOptions) -> None:
        self._options = options

    def decide(self, seen: Seen) -> Moves:
        most = seen.engine.max_num_batched_tokens
        budget = min(self._options.budget_cap, most) if self._pressure(seen) else most
        return Moves(budget, seen.room)

    def _pressure(self, seen: Seen) -> bool:
        running, options = seen.running, self._options
        in_prefill = running.computed < running.prompt
        prefills = int(in_prefill.sum())
        decodes = len(running) - prefills
        # Nobody who waits has its prompt computed: a preempted one lost it.
        if prefills + seen.waiting >= options.prefills and decodes > 0:
            return True
        if not options.large_prefill_tokens or prefills != 1 or decodes < 2:
            return False
        left = int((running.prompt - running.computed)[in_prefill].sum())
        return left >= options.large_prefill_tokens
