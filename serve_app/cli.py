"""The ``brimful`` command: one subcommand a module, imported only when it is called."""

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence

from controller.errors import BrimfulError
from controller.version import RELEASE
from replicas.server.proxies import go_past

ABOUT = (
    "vLLM batches that fill KV memory and keep the latency SLA: serve, show, explain,"
    " check, simulate."
)

# name: (module with add_arguments(parser) and run(args) -> exit status, what the user gets). If
# the module has TAKES_MORE, ``args.more`` is what no argument of its own took, of ``args.argv``.
COMMANDS = {
    "serve": ("serve_app.launch.command", "start Ray and a model, and ask for a first token"),
    "stop": (
        "serve_app.launch.stop",
        "remove applications, and the controller with the last",
    ),
    "env": ("serve_app.environment", "environment variables that Ray must be started with"),
    "status": ("serve_app.status", "limits and load of each replica of a running cluster"),
    "explain": ("serve_app.explain", "what limits each replica's batch, and what would help"),
    "enforce": (
        "serve_app.enforce",
        "switch control off or on in a running cluster, without a restart",
    ),
    "record": (
        "serve_app.record",
        "record a running replica's steps as a profile file, for `replay`",
    ),
    "capture": ("serve_app.capture", "record a running fleet's requests as JSONL, for `replay`"),
    "check": (
        "serve_app.checks.command",
        "find every mistake in a Serve config or RayService before deploying",
    ),
    "apply": (
        "serve_app.apply.command",
        "apply a changed Serve config, without new replicas if possible",
    ),
    "demo": (
        "serve_app.demo.command",
        "run two real engines on this machine under real requests",
    ),
    "replay": (
        "simulator.replay.command",
        "simulate a workload under a policy; needs no accelerator",
    ),
    "shadow": (
        "simulator.replay.shadow",
        "replay captured requests with control and without",
    ),
    "fleet": (
        "simulator.fleet.command",
        "simulate a day of traffic under an autoscaling policy; needs no accelerator",
    ),
    "plan": (
        "simulator.plan.command",
        "memory, batch, capacity and cost of a model on a card, from its config.json alone",
    ),
    "model": ("serve_app.demo.model", "make a small model to try things with"),
}
# Former names, and what they stand for.
OLD_NAMES = {
    "small-model": ("model", "--kind", "smollm2"),
    "tiny-model": ("model", "--kind", "llama"),
}
# Packages that some commands need, and our extra that brings each.
SERVE = ("ray", "requests", "rich", "tqdm", "aiohttp", "fsspec", "jsonschema", "psutil")
EXTRAS = {
    "matplotlib": "plot",
    **dict.fromkeys(SERVE, "serve"),
    **dict.fromkeys(("vllm", "torch", "transformers", "tokenizers", "numba"), "cpu` or `gpu"),
}
FAILED, INTERRUPTED, PIPE_CLOSED = 2, 130, 141  # the last two as a shell reports the signals


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; an error becomes one message and exit status 2."""
    argv = list(sys.argv[1:] if argv is None else argv)
    argv = [*(OLD_NAMES.get(argv[0], argv[:1]) if argv else ()), *argv[1:]]
    go_past()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name may be what UTF-8 has no bytes for
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            status = _run(argv)
        finally:
            sys.stdout.flush()  # here, while a closed pipe still raises
    except BrimfulError as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        return _fail(f"this needs {package}; install Brimful with its `{EXTRAS[package]}` extra")
    except BrokenPipeError:
        # The reader of the output is gone (`| head`); Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except OSError as error:
        if error.filename is None:
            raise
        return _fail(f"{error.filename}: {error.strerror}")
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    return status


def _run(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="brimful", description=ABOUT)
    parser.add_argument("--version", action="version", version=f"brimful {RELEASE}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, summary) in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=summary)
        if name in argv[:1]:
            loaded = importlib.import_module(module)
            loaded.add_arguments(sub)
            sub.set_defaults(run=loaded.run, takes_more=getattr(loaded, "TAKES_MORE", False))
    args, more = parser.parse_known_args(argv)
    if more and not args.takes_more:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    args.more, args.argv = more, argv
    return int(args.run(args))


def _fail(message: str) -> int:
    for line in message.splitlines():
        print(f"error: {line}", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
