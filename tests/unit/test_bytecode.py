"""``make install``: what is compiled, and what is left to who imports it."""

from pathlib import Path

import pytest

from tools.bytecode import compile_packages, sources


def make(folder: Path, *paths: str, text: str = "x = 1\n") -> None:
    for path in paths:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def bytecode(folder: Path) -> set[str]:
    return {path.name.partition(".")[0] for path in folder.rglob("*.pyc")}


@pytest.mark.parametrize(
    "path",
    [
        "torch/__init__.py",
        "torch/_inductor/lowering.py",
        "transformers/models/__init__.py",
        "transformers/models/auto/modeling_auto.py",
        "vllm/model_executor/layers/linear.py",
        "ray/serve/api.py",
        "six.py",
        "package/contest/x.py",
    ],
)
def test_what_a_replica_imports_is_compiled(tmp_path: Path, path: str) -> None:
    make(tmp_path, path)
    assert sources(tmp_path) == [str(tmp_path / path)]


@pytest.mark.parametrize(
    "path",
    [
        "transformers/models/llama/modeling_llama.py",
        "vllm/model_executor/models/llama.py",
        "ray/rllib/core.py",
        "torch/testing/_internal/x.py",
        "pandas/tests/io/test_x.py",
        "tests/x.py",
        "numba/core/x.py",
    ],
)
def test_what_is_seldom_imported_is_not(tmp_path: Path, path: str) -> None:
    make(tmp_path, path)
    assert sources(tmp_path) == []


def test_what_does_not_compile_is_passed_over_and_not_counted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, "a/one.py", "a/two.py")
    make(tmp_path, "a/template.py", text="{{ this is no Python }}")
    assert compile_packages(tmp_path) == 2
    assert bytecode(tmp_path) == {"one", "two"}
    assert capfd.readouterr() == ("", "")
