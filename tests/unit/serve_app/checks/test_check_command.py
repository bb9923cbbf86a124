"""``brimful check`` as a command: what it prints, and its exit status."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.checks.command import check_file, quick_file
from serve_app.cli import main
from tests.serve_configs import APP, DIRECT, ENTRY, HERE, config, put, unknown

ROOT = Path(__file__).parents[4]
PLACE = "applications[0].args.llm_configs[0]"


def test_the_command_prints_every_problem_and_exits_with_2(tmp_path, capsys):
    path = tmp_path / "serve.yaml"
    data = put(config(), (*ENTRY, "scaling", "drain"), 1)
    path.write_text(yaml.safe_dump(put(data, ("proxy_locaton",), 1)))

    assert main(["check", str(path)]) == 2
    printed = capsys.readouterr()
    assert "ok" not in printed.out
    assert [line for line in printed.err.splitlines() if line.startswith("error: ")] == [
        f"error: {path}: {unknown(f'{PLACE}.scaling', 'drain', 'drain_s')}",
        f"error: {path}: {unknown('top level', 'proxy_locaton', 'proxy_location')}",
    ]


FAULTS = [
    ("applications: [\n", "not valid YAML"),
    (put(config(), (*ENTRY, "scaling", "drain"), 1), f"{PLACE}.scaling: unknown key 'drain'"),
    (put(config(), (*ENTRY, "server_cls"), "my:Server"), f"{PLACE}.server_cls: 'my:Server'"),
    (
        put(config(), (*ENTRY, "runtime_env"), {"env_vars": {"A": 1}}),
        f"{PLACE}.runtime_env.env_vars.A: 1 is not allowed",
    ),
    (
        put(config(), (*ENTRY, "batching", "max_running", "max"), 65),
        f"{PLACE}.batching.max_running.max: 65 is above max_num_seqs=64",
    ),
    (
        put(config(), (*APP, "args", "security"), {"extra_path": []}),
        "applications[0].args.security: unknown key 'extra_path'",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[1][-30:])
@pytest.mark.parametrize("in_service", [False, True])
def test_what_needs_neither_ray_nor_vllm_is_said_before_they_are_imported(
    fault: tuple[Any, str], in_service: bool, tmp_path, service
) -> None:
    data, says = fault
    text = data if isinstance(data, str) else yaml.safe_dump(data)
    if in_service:
        text = yaml.safe_dump(put(service, ("spec", "serveConfigV2"), text))
        says = f"spec.serveConfigV2.{says}" if says.startswith("app") else says
    path = tmp_path / "serve.yaml"
    path.write_text(text)
    (problem,) = quick_file(path).problems
    assert says in problem
    assert problem in check_file(path, HERE).problems  # by the same line, which is told once


def test_a_quick_check_imports_nothing_heavy(tmp_path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump(config()))
    code = (
        "import sys; from serve_app.cli import main\n"
        f"assert main(['check', '--quick', {str(path)!r}]) == 0\n"
        "assert not {'vllm', 'torch', 'ray', 'transformers'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)
    assert done.stdout.startswith(b"ok so far")


def test_for_scripts_all_that_was_found_is_one_json_object(tmp_path, monkeypatch, capsys):
    for name in DIRECT.env:
        monkeypatch.delenv(name, raising=False)
    sound, wrong, away = (tmp_path / f"{name}.yaml" for name in ("sound", "wrong", "away"))
    sound.write_text(yaml.safe_dump(put(config(), (*ENTRY, "deployment_config"), {})))
    wrong.write_text(yaml.safe_dump(put(config(), (*ENTRY, "scaling", "drain"), 1)))

    assert main(["check", "--json", "--no-paths", str(sound), str(wrong), str(away)]) == 2
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["ok", "files"]
    assert told["ok"] is False
    assert [list(one) for one in told["files"]] == [["file", "problems", "notes", "summary"]] * 3
    first, second, third = told["files"]
    assert first == {
        "file": str(sound),
        "problems": [],
        "notes": [f"{PLACE}.scaling: has no effect without deployment_config.autoscaling_config"],
        "summary": [
            "llm at /: model m, policy adaptive, 50 ms between tokens at p99, 2 to 64 running,"
            " 1 replica"
        ],
    }
    assert second["file"] == str(wrong)
    assert second["problems"] == [unknown(f"{PLACE}.scaling", "drain", "drain_s")]
    assert third["problems"] == ["cannot read it: No such file or directory"]

    assert main(["check", "--json", "--no-paths", str(sound)]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "files": [first]}


def test_the_shipped_configs_pass(tmp_path, monkeypatch, capsys):
    # cpu.yaml names a model that `brimful demo` makes before it deploys.
    model = tmp_path / ".cache" / "tiny-llama"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    for name, value in DIRECT.env.items():
        monkeypatch.setenv(name, value)

    files = sorted((ROOT / "configs").glob("*.yaml"))
    assert main(["check", *map(str, files)]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "ok"
    assert "note: " not in printed.err


def test_the_command_line_starts_without_vllm_or_ray():
    code = (
        "import sys; from serve_app.cli import main\n"
        "try: main(['check', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'vllm', 'torch', 'ray'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)
