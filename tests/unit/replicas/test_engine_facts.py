"""A machine in words."""

import os
import platform

import pytest

from replicas.server.engine_facts import cpu

X86 = """processor\t: 0
model name\t: AMD EPYC 9R14
flags\t\t: fpu sse2 avx2 avx512f avx512_bf16

processor\t: 1
model name\t: AMD EPYC 9R14
flags\t\t: fpu sse2 avx2 avx512f avx512_bf16
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd sve bf16\n\n"


@pytest.mark.parametrize(
    ("cpuinfo", "name", "features"),
    [
        (X86, "AMD EPYC 9R14", ", avx2, avx512f, avx512_bf16"),
        (ARM, platform.machine(), ", bf16, sve, asimd"),
        (None, platform.machine(), ""),
    ],
)
def test_a_processor_has_a_name_cores_and_what_matters_of_it(tmp_path, cpuinfo, name, features):
    path = tmp_path / "cpuinfo"
    if cpuinfo is not None:
        path.write_text(cpuinfo)
    cores = len(os.sched_getaffinity(0))
    assert cpu(path) == f"{name}, {cores} core{'s' * (cores > 1)}{features}"
