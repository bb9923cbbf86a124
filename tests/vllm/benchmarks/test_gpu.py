"""The bench of a card, with the tiny model on CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.report.document import ROOT
from replicas.profiles.profile_file import load_profile


@pytest.mark.engine
@pytest.mark.timeout(400)
def test_the_whole_of_it_in_a_minute(tmp_path: Path) -> None:
    out = tmp_path / "out"
    env = {
        **os.environ,
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "benchmarks", "gpu", "--out", str(out), "--budget-s", "90"]
    command += ["--try", "--seconds", "2", "--itl-ms", "60", "--rounds", "1"]
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=350, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (out / "steps.json").exists()
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["bench"] == "gpu"
    ids = [row["id"] for row in result["rows"]]
    assert json.loads((out / "rows.json").read_text()) == result["rows"]
    assert "gpu_step_of_one" in ids
    assert load_profile(str(out / "card.json")).step_s(1, 100, 0, 0) > 0
    # Parts without enough time are named.
    assert any("left out:" in line for line in done.stdout.splitlines())
