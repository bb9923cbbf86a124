"""What of vLLM the shorter start leans on."""

import signal
import subprocess
import sys
from dataclasses import fields

from vllm import envs
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.engine.core import EngineCoreProc

from replicas.workarounds.core_process import RunEngineCore, quick_imports


def test_the_function_is_another_one_only_while_engines_are_started() -> None:
    theirs = EngineCoreProc.run_engine_core
    with quick_imports():
        assert isinstance(EngineCoreProc.run_engine_core, RunEngineCore)
    assert EngineCoreProc.run_engine_core is theirs


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


DIES = """
import os, pickle, signal
from vllm.v1.engine.core import EngineCoreProc
from replicas.workarounds.core_process import RunEngineCore
pickle.loads(pickle.dumps(RunEngineCore())).ends()
os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_an_enginecore_that_dies_of_a_bad_address_names_python_frames_alone() -> None:
    done = subprocess.run([sys.executable, "-c", DIES], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert "Segfault encountered" not in done.stderr
