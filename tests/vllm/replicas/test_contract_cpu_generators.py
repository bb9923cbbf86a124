"""What the mended CPU runner leans on; where vLLM or PyTorch mends it, ours can go."""

import inspect

import pytest
import torch
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from replicas.workarounds import cpu_generators


def test_the_runner_sets_generators_back_and_a_cpu_has_no_such_thing():
    assert "gen.set_offset(" in inspect.getsource(GPUModelRunner._bookkeeping_sync)
    with pytest.raises(RuntimeError, match="CPU Generator does not use offset"):
        torch.Generator().get_offset()


def test_it_mends_once_and_leaves_other_runners_alone():
    cpu_generators.mend()
    once = CPUModelRunner.sample_tokens
    cpu_generators.mend()
    assert CPUModelRunner.sample_tokens == once
    assert hasattr(once, cpu_generators.MENDED)
    assert not hasattr(GPUModelRunner.sample_tokens, cpu_generators.MENDED)
