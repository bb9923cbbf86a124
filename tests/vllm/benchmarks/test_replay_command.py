"""``brimful replay`` as a command: what it prints, what it draws, what it refuses."""

import json
from pathlib import Path

import pytest

from serve_app.cli import main
from tests.replay_keys import KEYS

SMALL = ("--workload", "exponential:50,20", "--requests", "20", "--kv-tokens", "4000")


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[list[dict[str, object]], str]:
    """What ``brimful replay ARGS --json`` printed: objects, and its messages."""
    assert main(["replay", *args, "--json"]) == 0
    out, err = capsys.readouterr()
    return [json.loads(line) for line in out.splitlines()], err


def test_json_is_one_object_a_line_for_each_policy(capsys: pytest.CaptureFixture[str]) -> None:
    specs = ("static", "paper:memory=live", "sarathi:max_num_seqs=4")
    asked = [word for spec in specs for word in ("--policy", spec)]
    found, _ = printed(capsys, *SMALL, "--rate", "5", *asked)
    assert [f["policy"] for f in found] == list(specs)
    assert all(tuple(f) == KEYS for f in found)
    assert all(f["requests"] == f["finished"] == 20 for f in found)
    assert all(f["sla_attainment"] is None for f in found)


def test_files_never_seen_before_are_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f'{{"arrival_s": {k}, "input_tokens": 9, "output_tokens": 5}}' for k in range(4)]
    (tmp_path / "w.jsonl").write_text("\n".join(lines))
    profile = {"fixed_ms": 10, "ms_per_decode": 1, "kv_capacity_tokens": 1000}
    (tmp_path / "p.json").write_text(json.dumps({"source": "me", "lines": {"mine": profile}}))
    args = ("--workload", f"{tmp_path}/w.jsonl", "--profile", f"{tmp_path}/p.json:mine")
    found, _ = printed(capsys, *args)
    assert found[0]["requests"] == 4
    assert found[0]["duration_s"] == pytest.approx(3 + 0.010 + 4 * 0.011)


def test_a_searched_capacity_is_printed_with_the_fluid_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = {"fixed_ms": 400, "ms_per_decode": 10, "kv_capacity_tokens": 2000}
    (tmp_path / "p.json").write_text(json.dumps({"source": "me", "lines": {"slow": profile}}))
    args = ("--workload", "fixed:1,11", "--burstiness", "0", "--profile", f"{tmp_path}/p.json")
    args += ("--requests", "50")
    found, said = printed(capsys, *args, "--find-capacity", "--sla-itl-ms", "500")
    assert tuple(found[0]) == (*KEYS, "capacity_per_s")
    # 10 decodes in 500 ms, 10 of them a request.
    assert found[0]["capacity_per_s"] == pytest.approx(2.0, rel=0.05)
    assert "fluid limit 2.00/s" in said
    assert "static: does not hold " in said
    assert "--burstiness 1" not in said  # it was given arrivals


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--workload", "azur"), "error: workload: unknown key 'azur'"),
        (("--profile", "h100"), "error: profile: unknown key 'h100'"),
        (("--policy", "magic"), "error: policy: unknown key 'magic'"),
        (("--sla-itl-ms", "0"), "error: sla.itl_ms: 0.0 is not allowed"),
        (("--percentile", "100"), "error: sla.percentile: 100.0 is not allowed"),
        (("--find-capacity",), "error: find-capacity: needs an SLA"),
        (("--find-capacity", "--rate", "3", "--sla-itl-ms", "50"), "leave --rate and --phases out"),
        (("--phases", "fixed:1,1@3"), "error: phases: 'fixed:1,1@3' is not allowed"),
        (("--phases", "fixed:1,1@0@5"), "a rate from 0.001 to 1,000,000, seconds above 0 up to"),
        (("--phases", "fixed:1,1@3@5", "--rate", "3"), "leave --rate, --requests out"),
        (("--workload", "fixed:9,9", "--kv-tokens", "16"), "error: kv-tokens: 16 is not allowed"),
        (("--policy", "paper:max_running.max=512"), "512 is above max_num_seqs=256"),
        ((*SMALL, "--plot", "p.doc"), "error: p.doc: .doc is not allowed: "),
        ((*SMALL, "--plot", "nowhere/p.png"), "error: nowhere/p.png: cannot be written: No such"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(
    args: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", *args]) == 2
    assert says in capsys.readouterr().err
