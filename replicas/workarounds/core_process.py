"""EngineCore's process: quick imports, and a quick death.

No garbage is collected, and pandas is not found, while it imports vLLM.

The process is spawned, and imports all of vLLM as it unpickles its arguments. Nothing of ours runs
before that but what the first of them, the function to run, does when it is unpickled. So nothing
heavy may be imported at the top here.

vLLM imports pandas wherever it is installed, and uses it for AMD's kernels alone.

xgrammar's TVM handles SIGSEGV by naming C++ frames, 3 s on an idle machine, and until the process
has ended no other engine goes on with its answers. Python's handler writes the Python frames within
a millisecond.
"""

import contextlib
import faulthandler
import gc
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

PANDAS = "pandas"


class RunEngineCore:
    """vLLM's ``EngineCoreProc.run_engine_core``, and no collection before it runs.

    Args:
        absent: modules that the imports before it do not find.
    """

    def __init__(self, absent: tuple[str, ...] = ()) -> None:
        self._absent = absent

    def __reduce__(self) -> tuple[Callable[..., "RunEngineCore"], tuple[tuple[str, ...]]]:
        return _unpickled, (self._absent,)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        from vllm.v1.engine.core import EngineCoreProc

        self.ends()
        EngineCoreProc.run_engine_core(*args, **kwargs)

    def ends(self) -> None:
        """The imports are done: collect again, and find what was absent."""
        for name in self._absent:
            if name in sys.modules and sys.modules[name] is None:
                del sys.modules[name]
        gc.freeze()  # what was imported stays; vLLM does the same when the engine is up
        gc.enable()
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # Python's handler ends with what it finds
        faulthandler.enable()


def _unpickled(absent: tuple[str, ...]) -> RunEngineCore:
    gc.disable()
    modules: dict[str, Any] = sys.modules
    for name in absent:
        modules.setdefault(name, None)  # importing it fails as if it were not installed
    return RunEngineCore(absent)


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """EngineCore processes that are started in a ``with`` block import without collection."""
    from vllm.platforms import current_platform
    from vllm.v1.engine.core import EngineCoreProc

    theirs = EngineCoreProc.__dict__["run_engine_core"]
    EngineCoreProc.run_engine_core = RunEngineCore(() if current_platform.is_rocm() else (PANDAS,))
    try:
        yield
    finally:
        EngineCoreProc.run_engine_core = theirs
