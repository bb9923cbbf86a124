"""A seeded request whose prompt is computed in parts, on vLLM's CPU runner.

The runner samples a token after each part of a prompt, throws it away, and sets the request's
generator back by four. PyTorch's generators on a CPU cannot be set back ("CPU Generator does not
use offset"): the error ends the engine (docs/upstream/vllm-cpu-seeded-chunks.md). Here the runner
does not use the generator if the token is to be thrown away, so nothing has to be reset.

Parts are rare in vLLM and the rule under an SLA. The runner lives in the worker's process
(``cpu_workers``).
"""

import functools
import sys
from typing import Any

RUNNER, MENDED = "vllm.v1.worker.cpu_model_runner", "brimful_mended"


def mend() -> None:
    """Mend the CPU runner of this process, if it has one; harmless when done twice."""
    runner = getattr(sys.modules.get(RUNNER), "CPUModelRunner", None)
    if runner is None or hasattr(theirs := runner.sample_tokens, MENDED):
        return

    @functools.wraps(theirs)
    def sample_tokens(self: Any, *args: Any, **kwargs: Any) -> Any:
        generators: dict[int, Any] = self.input_batch.generators  # by place in the batch
        discarded = self.discard_request_mask.np[: self.input_batch.num_reqs]
        unused = {k: generators.pop(k) for k in discarded.nonzero()[0].tolist() if k in generators}
        try:
            return theirs(self, *args, **kwargs)
        finally:
            generators.update(unused)

    setattr(sample_tokens, MENDED, True)
    runner.sample_tokens = sample_tokens
