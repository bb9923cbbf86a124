"""What the mended CPU runner leans on; where vLLM or PyTorch mends it, ours can go."""

import inspect
import tomllib
from pathlib import Path

import pytest
import torch
from vllm.plugins import DEFAULT_PLUGINS_GROUP
from vllm.utils.import_utils import resolve_obj_by_qualname
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.gpu_input_batch import InputBatch
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm.v1.worker.worker_base import WorkerWrapperBase

from replicas.workarounds import cpu_generators

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_the_runner_sets_generators_back_and_a_cpu_has_no_such_thing():
    assert "gen.set_offset(" in inspect.getsource(GPUModelRunner._bookkeeping_sync)
    with pytest.raises(RuntimeError, match="CPU Generator does not use offset"):
        torch.Generator().get_offset()


def test_sampling_reads_the_generators_that_the_batch_holds():
    assert "generators=self.generators," in inspect.getsource(InputBatch._make_sampling_metadata)
    assert "self.discard_request_mask.np[" in inspect.getsource(GPUModelRunner._bookkeeping_sync)
    assert CPUModelRunner.__mro__[1] is GPUModelRunner


def test_it_is_installed_once_and_leaves_other_runners_alone():
    cpu_generators.install()
    once = CPUModelRunner.sample_tokens, WorkerWrapperBase.init_device
    cpu_generators.install()
    assert (CPUModelRunner.sample_tokens, WorkerWrapperBase.init_device) == once
    assert hasattr(once[0], cpu_generators.MENDED)
    assert not hasattr(GPUModelRunner.sample_tokens, cpu_generators.MENDED)


def test_vllm_calls_it_in_each_of_its_processes():
    points = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]
    named = points[DEFAULT_PLUGINS_GROUP]["brimful-cpu-generators"]
    assert resolve_obj_by_qualname(named.replace(":", ".")) is cpu_generators.install
