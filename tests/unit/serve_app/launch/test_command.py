"""``brimful serve``: what is deployed beside what runs, and what nobody is to read or miss."""

import signal
import subprocess
import sys

import pytest

from serve_app.apply.cluster import ClusterError
from serve_app.launch import command
from serve_app.launch.local_cluster import require_free

RUNNING = {"lasting": {"route_prefix": None}, "llm": {"route_prefix": "/"}}


def deploying(name: str, route: str | None) -> dict[str, object]:
    return {"applications": [{"name": name, "import_path": "a:b", "route_prefix": route}]}


@pytest.mark.parametrize(("name", "route"), [("llm", "/new"), ("new", "/")])
def test_a_name_or_a_route_that_is_taken_is_refused(name: str, route: str) -> None:
    with pytest.raises(ClusterError, match="'llm' runs in this cluster already, at /"):
        command._deployable(deploying(name, route), RUNNING)


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGHUP])
def test_what_a_shell_has_ignore_ctrl_c_ends_by_other_signals(by: signal.Signals) -> None:
    script = (
        "import signal\n"
        "from serve_app.launch.local_cluster import end_as_by_ctrl_c\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # which `nohup` has the tests ignore
        "end_as_by_ctrl_c()\n"
        "try:\n  print('up', flush=True)\n  signal.pause()\n"
        "except KeyboardInterrupt:\n  print('stopped')\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        process.send_signal(by)
        assert process.stdout.read() == "stopped\n"


def test_a_file_that_is_kept_has_no_secret_in_its_first_line() -> None:
    argv = ["serve", "m", "--hf-token", "a", "--api_key=b", "--port", "1"]
    assert command._shown(argv) == [*argv[:3], "...", "--api_key=...", *argv[5:]]


def test_a_port_beyond_the_last_is_an_error_that_names_it() -> None:
    with pytest.raises(ClusterError, match="--port: 99999 is not allowed: at most 65535"):
        require_free(99999, "--port")
