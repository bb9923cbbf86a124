"""`brimful plan --write`, and then the whole of `brimful check`."""

from pathlib import Path

import pytest

from serve_app.cli import main


@pytest.mark.parametrize(
    "args",
    [("llama-3.1-8b",), ("deepseek-v3", "--gpu", "H200"), ("gpt-oss-20b", "--gpu", "MI300X")],
)
def test_check_accepts_what_plan_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...]
) -> None:
    path = tmp_path / "serve.yaml"
    assert main(["plan", *args, "--write", str(path)]) == 0
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out.endswith("ok\n")
