"""The gate in front of one engine, by its settings."""

import time
from typing import Any

from replicas.admission.admission import Admission
from replicas.admission.gate import Gate
from replicas.engine.settings import Live


def gate_for(client: Any, live: Live) -> Gate | None:
    """Put a gate around the client's ``generate``; None if no request is refused.

    Args:
        client: vLLM's ``AsyncLLM``.
    """
    if not live.guarded:
        return None
    slots = client.vllm_config.scheduler_config.max_num_seqs
    admission = Admission(*live.let_in_by(), slots, time.monotonic())
    gate = Gate(admission, named_classes=live.classes is not None)
    gate.guard(client)
    return gate
