"""What of vLLM the shorter start leans on."""

import gc
import inspect
from dataclasses import fields

from vllm import envs
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.gc_utils import freeze_gc_heap
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.engine.utils import CoreEngineProcManager

from replicas.workarounds.core_process import RunEngineCore, quick_imports


def test_enginecore_is_still_spawned_with_this_function_as_its_target() -> None:
    assert isinstance(EngineCoreProc.__dict__["run_engine_core"], staticmethod)
    source = inspect.getsource(CoreEngineProcManager.__init__)
    assert "target=EngineCoreProc.run_engine_core" in source
    assert "context.Process(" in source


def test_the_function_is_another_one_only_while_engines_are_started() -> None:
    theirs = EngineCoreProc.run_engine_core
    with quick_imports():
        assert isinstance(EngineCoreProc.run_engine_core, RunEngineCore)
    assert EngineCoreProc.run_engine_core is theirs


def test_vllm_still_freezes_what_lives_when_its_own_server_is_up() -> None:
    try:
        freeze_gc_heap()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_vllm_still_knows_what_a_new_replica_is_told_to_go_by() -> None:
    assert {"VLLM_ENABLE_STARTUP_PLAN", "VLLM_CACHE_ROOT"} <= envs.environment_variables.keys()
    known = {field.name for field in fields(EngineArgs)}
    assert known >= {
        "safetensors_load_strategy",
        "kv_cache_memory_bytes",
        "cudagraph_capture_sizes",
        "enforce_eager",
        "enable_sleep_mode",
    }
