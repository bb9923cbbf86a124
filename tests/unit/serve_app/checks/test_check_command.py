"""``brimful check`` as a command: what it prints, and its exit status."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from serve_app.checks.command import check_file, quick_file
from serve_app.cli import main
from serve_app.haproxy import FORWARD_BODY
from tests.serve_configs import ARGS, DIRECT, HERE, LLAMA, PLACE, config, having, put, unknown

ROOT = Path(__file__).parents[4]
DRAIN = unknown(f"{PLACE}.scaling", "drain", "drain_s")


def test_the_command_prints_every_problem_and_exits_with_2(tmp_path, capsys):
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump(having("scaling.drain", 1, having("//proxy_locaton", 1))))
    assert main(["check", str(path)]) == 2
    printed = capsys.readouterr()
    assert "ok" not in printed.out
    assert [line for line in printed.err.splitlines() if line.startswith("error: ")] == [
        f"error: {path}: {DRAIN}",
        f"error: {path}: {unknown('top level', 'proxy_locaton', 'proxy_location')}",
    ]


@pytest.mark.parametrize("in_service", [False, True])
@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("applications: [\n", "not valid YAML"),
        (having("scaling.drain", 1), f"{PLACE}.scaling: unknown key 'drain'"),
        (having("server_cls", "my:Server"), f"{PLACE}.server_cls: 'my:Server'"),
        (having("/args.security", {"extra_path": []}),
         f"{ARGS}.security: unknown key 'extra_path'"),
    ],
    ids=["yaml", "key", "server", "security"],
)  # fmt: skip
def test_what_needs_neither_ray_nor_vllm_is_said_before_they_are_imported(
    data, says, in_service: bool, tmp_path, service
) -> None:
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


def test_the_shipped_configs_pass(tmp_path, monkeypatch, capsys):
    # cpu.yaml names a model that `brimful demo` makes before it deploys.
    model = tmp_path / ".cache" / "tiny-llama"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    for name, value in DIRECT.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(FORWARD_BODY, "1")  # agents.yaml: the router has to see prompts
    assert main(["check", *map(str, sorted((ROOT / "configs").glob("*.yaml")))]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "ok"
    assert "note: " not in printed.err
