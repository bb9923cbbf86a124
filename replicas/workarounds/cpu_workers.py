"""What the workers of an engine on a CPU need before its first request, in whichever process.

vLLM makes the scheduler last: its workers are up by then, and have computed no attention and drawn
no token that is kept. So the engine mends them as its first request comes.
"""

import functools
import logging
from typing import Any

from vllm.platforms import current_platform
from vllm.v1.engine.core import EngineCore

from replicas.workarounds import amx, cpu_generators

logger = logging.getLogger(__name__)
MENDED = "brimful_workers_mended"


def install() -> None:
    """Have each EngineCore of this process mend its workers; harmless when done twice."""
    theirs = EngineCore.add_request
    if not current_platform.is_cpu() or hasattr(theirs, MENDED):
        return

    @functools.wraps(theirs)
    def add_request(self: Any, *args: Any, **kwargs: Any) -> None:
        if not hasattr(self, MENDED):
            setattr(self, MENDED, True)
            try:
                self.model_executor.collective_rpc(mend)
            except Exception as error:  # as if brimful cannot be imported in a worker's process
                logger.warning("The workers go on without replicas.workarounds: %r", error)
        theirs(self, *args, **kwargs)

    setattr(add_request, MENDED, True)
    EngineCore.add_request = add_request


def mend(worker: Any = None) -> None:
    """Mend the process of a worker, in which vLLM calls this."""
    amx.permit()
    cpu_generators.mend()
