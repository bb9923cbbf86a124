"""The arguments of ``brimful serve``."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.config import A_DAY_MS
from controller.errors import ConfigError
from serve_app.flag_number import ABOVE_0, number
from serve_app.launch.config_file import LOOPBACK, PORT

ABOUT = (
    "Serve a model or a Serve config: write the config, check it, start Ray (or join a running"
    " cluster), deploy, and ask for a first token. Ctrl-C drains and stops what was started."
)
EPILOG = (
    "Flags of `vllm serve` may follow; each becomes the engine_kwarg of its name: brimful"
    " serve MODEL --itl-ms 50 --max-model-len 4096 --tensor-parallel-size 2. On a cluster that"
    " outlives this command: --dry-run --write FILE, and `serve deploy FILE`."
)
SUFFIXES = (".yaml", ".yml")
LOCAL = (".", "/")  # what a name on the hub does not begin with
# Only for a model: a file has these itself.
OF_MODEL = (
    *("itl_ms", "ttft_ms", "replicas", "served_model_name", "host", "port"),
    *("emulate", "write"),
)


@dataclass(frozen=True, slots=True)
class Replicas:
    """A number of replicas, or two bounds for autoscaling."""

    least: int
    most: int

    @property
    def scaled(self) -> bool:
        return self.least != self.most


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments; any other one is vLLM's."""
    parser.description, parser.epilog, parser.allow_abbrev = ABOUT, EPILOG, False
    parser.usage = "brimful serve MODEL|FILE [OPTIONS] [VLLM'S OPTIONS]"
    parser.add_argument(
        "what", metavar="MODEL|FILE", help="name on the Hugging Face hub, folder, or Serve config"
    )
    parser.add_argument(
        "--itl-ms",
        type=_ms,
        metavar="MS",
        help="target for the time between two tokens (default: none)",
    )
    parser.add_argument(
        "--ttft-ms",
        type=_ms,
        metavar="MS",
        help="target for the time to first token (default: none)",
    )
    parser.add_argument(
        "--replicas",
        type=_replicas,
        metavar="N|MIN:MAX",
        help="number of replicas; two numbers turn autoscaling on (default: 1)",
    )
    parser.add_argument(
        "--served-model-name",
        metavar="NAME",
        help="model name that clients send (default: MODEL's)",
    )
    parser.add_argument("--host", help=f"address of the HTTP server (default: {LOOPBACK})")
    parser.add_argument(
        "--port",
        type=int,
        help=f"port of the HTTP server (default: {PORT})",
    )
    parser.add_argument(
        "--emulate",
        metavar="PROFILE",
        help="emulate an accelerator: steps take the time of this profile, tokens mean nothing",
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the config to this file")
    parser.add_argument(
        "--dry-run", action="store_true", help="write, check and print the config, start nothing"
    )
    parser.add_argument(
        "--address",
        default="auto",
        metavar="HOST:PORT",
        help="address of Ray's head node; local: always start a cluster (default: RAY_ADDRESS,"
        " else the cluster on this machine, else a new one)",
    )


def given_file(args: argparse.Namespace, more: Sequence[str]) -> Path | None:
    """The Serve config that was named; None: it is a model.

    Raises:
        ConfigError: flags of a model with a file, vLLM's flags before the model, no such folder.
    """
    first = next(iter(more), None)
    if first is not None and args.argv.index(first) < args.argv.index(args.what):
        raise ConfigError([f"{first}: MODEL comes first, vLLM's flags come after it"])
    path = Path(args.what)
    if path.suffix not in SUFFIXES or path.is_dir():
        if args.what.startswith(LOCAL) and not path.is_dir():
            raise ConfigError([f"{args.what}: no such folder"])
        return None
    given = [f"--{key.replace('_', '-')}" for key in OF_MODEL if getattr(args, key) is not None]
    given += [flag.partition("=")[0] for flag in more if flag.startswith("-")]
    if given:
        raise ConfigError([f"{flag}: is not allowed with a file; change {path}" for flag in given])
    return path


def _ms(text: str) -> float:
    value = number("ms above 0, up to a day", ABOVE_0, A_DAY_MS)(text)
    return int(value) if value == int(value) else value


def _replicas(text: str) -> Replicas:
    least, colon, most = text.partition(":")
    try:
        made = Replicas(int(least), int(most) if colon else int(least))
    except ValueError:
        made = Replicas(0, 0)
    if not 1 <= made.least <= made.most:
        raise argparse.ArgumentTypeError(
            f"{text} is not allowed: a number from 1, or two as 1:8, the larger one last"
        )
    return made
