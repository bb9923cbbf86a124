"""EngineCore's process without garbage collection while it imports vLLM.

The process is spawned, and imports all of vLLM as it unpickles its arguments. Nothing of ours runs
before that but what the first of them, the function to run, does when it is unpickled. So nothing
heavy may be imported at the top here.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any


class RunEngineCore:
    """vLLM's ``EngineCoreProc.run_engine_core``, and no collection before it runs."""

    def __reduce__(self) -> tuple[Callable[[], "RunEngineCore"], tuple[()]]:
        return _unpickled, ()

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        from vllm.v1.engine.core import EngineCoreProc

        gc.freeze()  # what was imported stays; vLLM does the same when the engine is up
        gc.enable()
        EngineCoreProc.run_engine_core(*args, **kwargs)


def _unpickled() -> RunEngineCore:
    gc.disable()
    return RunEngineCore()


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """EngineCore processes that are started in a ``with`` block import without collection."""
    from vllm.v1.engine.core import EngineCoreProc

    theirs = EngineCoreProc.__dict__["run_engine_core"]
    EngineCoreProc.run_engine_core = RunEngineCore()
    try:
        yield
    finally:
        EngineCoreProc.run_engine_core = theirs
