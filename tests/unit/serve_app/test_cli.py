"""The ``brimful`` command itself: whatever goes wrong is one message, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from controller.errors import ConfigError
from serve_app import cli

ROOT = Path(__file__).parents[3]


def ending(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    """The status of a subcommand that ends with this."""
    module = ModuleType("of_a_test")

    def run(_args: object) -> int:
        raise error

    module.add_arguments, module.run = lambda _parser: None, run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "of_a_test", module)
    monkeypatch.setitem(cli.COMMANDS, "try", ("of_a_test", "try something"))
    return cli.main(["try"])


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ConfigError(["a: 1", "b: 2"]), 2, "error: a: 1\nerror: b: 2\n"),
        (PermissionError(13, "Permission denied", "/x"), 2, "error: /x: Permission denied\n"),
        (
            ModuleNotFoundError("no", name="vllm.engine"),
            2,
            "error: this needs vllm; install Brimful with its `cpu` or `gpu` extra\n",
        ),
        (KeyboardInterrupt(), 130, "\n"),
    ],
)
def test_what_goes_wrong_is_said(error, status, said, monkeypatch, capsys):
    assert ending(error, monkeypatch) == status
    assert capsys.readouterr().err == said


def test_a_mistake_of_ours_is_not_hidden(monkeypatch):
    with pytest.raises(ModuleNotFoundError):
        ending(ModuleNotFoundError("no", name="serve_app.nobody"), monkeypatch)


def test_a_reader_that_is_gone_is_no_error():
    read, write = os.pipe()
    os.close(read)
    prints = (
        "import sys, types; from serve_app import cli; module = types.ModuleType('of_a_test');"
        "module.add_arguments = lambda parser: None; module.run = lambda args: print('x') or 0;"
        "sys.modules['of_a_test'] = module; cli.COMMANDS['try'] = ('of_a_test', 'try');"
        "sys.exit(cli.main(['try']))"
    )
    command = [sys.executable, "-c", prints]
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            command, cwd=ROOT, stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("command", [["status"], ["explain"], ["enforce", "off"]])
def test_where_nobody_listens_that_is_said_at_once(command, capsys):
    assert cli.main([*command, "--address", "127.0.0.1:1"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: no Ray cluster answers at 127.0.0.1:1: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--address", "local"], []])
def test_no_cluster_is_started_to_look_at(arguments, monkeypatch, capsys):
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert cli.main(["status", *arguments]) == 2
    assert capsys.readouterr().err == (
        "error: no Ray cluster answers at local: Ray would start one of its own\n"
    )
