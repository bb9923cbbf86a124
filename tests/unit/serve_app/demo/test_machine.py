"""What this machine is fit for."""

from pathlib import Path

import pytest

from serve_app.demo.stack import (
    GIB,
    small_model_obstacle,
    suit_processor,
)


@pytest.mark.parametrize(
    ("cpuinfo", "dtype"),
    [
        ("processor : 0\nflags\t\t: fpu sse2 fma avx2\n", "float32"),
        ("processor : 0\nflags\t\t: fpu sse2 fma avx2 avx512f amx_bf16\n", "bfloat16"),
        ("processor : 0\nFeatures\t: fp asimd\n", "bfloat16"),  # not an x86
        (None, "bfloat16"),  # a system without the file
    ],
)
def test_bfloat16_is_not_taken_where_the_processor_has_nothing_for_it(
    tmp_path: Path, cpuinfo: str | None, dtype: str
) -> None:
    path = tmp_path / "cpuinfo"
    if cpuinfo is not None:
        path.write_text(cpuinfo)
    engine = {"dtype": "bfloat16", "kv_cache_memory_bytes": 1000}
    suit_processor(engine, path)
    memory = 2000 if dtype == "float32" else 1000  # as many tokens
    assert engine == {"dtype": dtype, "kv_cache_memory_bytes": memory}


@pytest.mark.parametrize(
    ("flags", "free_gib", "obstacle"),
    [
        ("sse2 avx512f", 6, None),
        ("sse2 avx512f", 5.9, "5.9 GiB of memory free, 6.0 needed"),
        ("sse2 avx2", 64, "no AVX-512"),
    ],
)
def test_the_small_model_needs_avx512_and_memory(
    tmp_path: Path, flags: str, free_gib: float, obstacle: str | None
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(f"flags\t\t: {flags}\n")
    assert small_model_obstacle(int(free_gib * GIB), path) == obstacle
