"""``fill_batch``: who waits starts together, once enough wait or the first has waited long enough.

Where a batch is formed before it runs, waiting for more requests fills it; texts on continuous
batching still name such a delay (100 to 500 ms). Text Generation Inference has the same as a ratio:
running requests are interrupted by prompts once as many wait as ``waiting_served_ratio`` times
those that run, or after ``max_waiting_tokens`` steps.

Source: huggingface/text-generation-inference, router/src/infer (its defaults: 1.2 and 20).
"""

from benchmarks.baselines.options import FillBatchOptions
from benchmarks.baselines.rival import Moves, Seen, Unmoved
from controller.records import StepSample


class FillBatch(Unmoved):
    """Holds starts back."""

    def __init__(self, options: FillBatchOptions) -> None:
        self._options = options
        self._steps = 0

    def decide(self, seen: Seen) -> Moves:
        budget, options = seen.engine.max_num_batched_tokens, self._options
        if not seen.waiting:
            return Moves(budget, 0)
        waited_s = seen.now_s - float(seen.first_waiting(1).arrival_s[0])
        enough = seen.waiting >= options.waiting_served_ratio * len(seen.running)
        due = waited_s * 1000 >= options.wait_ms or 0 < options.wait_steps <= self._steps
        return Moves(budget, seen.room if enough or due else 0)

    def observe(self, sample: StepSample, running: int, now_s: float) -> None:
        """Count steps without a prompt."""
        self._steps = 0 if sample.prefill_tokens else self._steps + 1
