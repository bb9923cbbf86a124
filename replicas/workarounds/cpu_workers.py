"""Patches for the workers of an engine on a CPU, in any process, before the first request.

vLLM makes the scheduler last: its workers are up by then, but have computed no attention and
sampled no token that counts. So the engine patches them when its first request arrives.
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
    """Make each EngineCore of this process patch its workers; may be called twice."""
    theirs = EngineCore.add_request
    if not current_platform.is_cpu() or hasattr(theirs, MENDED):
        return

    @functools.wraps(theirs)
    def add_request(self: Any, *args: Any, **kwargs: Any) -> None:
        if not hasattr(self, MENDED):
            setattr(self, MENDED, True)
            try:
                self.model_executor.collective_rpc(mend)
            except (
                Exception
            ) as error:  # for example, brimful cannot be imported in a worker's process
                logger.warning("The workers go on without replicas.workarounds: %r", error)
        theirs(self, *args, **kwargs)

    setattr(add_request, MENDED, True)
    EngineCore.add_request = add_request


def mend(worker: Any = None) -> None:
    """Patch a worker's process; vLLM calls this there."""
    amx.permit()
    cpu_generators.mend()
