"""A seeded request whose prompt is computed in parts, on vLLM's CPU runner.

The runner samples a token after each part of a prompt, discards it, and sets the request's
generator back by four. PyTorch's generators on a CPU cannot be set back ("CPU Generator does not
use offset"): the error ends the engine (docs/upstream/vllm-cpu-seeded-chunks.md). Here the runner
does not use the generator if the token will be discarded, so nothing has to be reset.

Chunked prompts are rare in vLLM and usual under an SLA. The runner is in the worker's process
(``cpu_workers``).
"""

import functools
import sys
from typing import Any

RUNNER, MENDED = "vllm.v1.worker.cpu_model_runner", "brimful_mended"


def mend() -> None:
    """Patch the CPU runner of this process, if it has one; may be called twice."""
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
