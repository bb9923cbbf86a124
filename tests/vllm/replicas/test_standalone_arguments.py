"""The arguments in docs/standalone*.md and k8s/standalone: vLLM takes them, and so do we."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

from replicas.engine.settings import parse_settings
from replicas.scheduler import DynamicBatchScheduler

ROOT = Path(__file__).parents[3]
PAGE = "".join(
    (ROOT / "docs" / name).read_text() for name in ("standalone.md", "standalone-reference.md")
)


def after(program: str) -> list[str]:
    """The arguments of the one command on the pages that begins with ``program``."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", PAGE, re.M | re.S)
    (found,) = [block for block in blocks if block.startswith(program)]
    return shlex.split(found.removeprefix(program).replace("\\\n", " "))


def values(key: str) -> Any:
    """The block of YAML on the pages with this key at its top."""
    blocks = [
        yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    ]
    (found,) = [block for block in blocks if key in block]
    return found[key]


def manifest() -> list[str]:
    deployment, _ = yaml.safe_load_all((ROOT / "k8s/standalone/deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"][:2] == ["vllm", "serve"]
    return ["--model", *container["command"][2:], *container["args"]]


PLACES = {
    "vllm serve": lambda: ["--model", *after("vllm serve")],
    "Deployment": manifest,
    "production-stack": lambda: values("servingEngineSpec")["modelSpec"][0]["vllmConfig"][
        "extraArgs"
    ],
    "llm-d": lambda: values("decode")["containers"][0]["args"],
    "Dynamo": lambda: after("python -m dynamo.vllm"),
}


@pytest.mark.parametrize("place", PLACES)
def test_vllm_takes_the_arguments_and_we_its_block(place):
    """Dynamo's worker makes the same parser."""
    parser = FlexibleArgumentParser(add_help=False)
    AsyncEngineArgs.add_cli_args(parser)
    taken = AsyncEngineArgs.from_cli_args(parser.parse_args(PLACES[place]()))
    assert taken.scheduler_cls == f"replicas.scheduler.{DynamicBatchScheduler.__name__}"
    assert parse_settings(taken.additional_config).batching.sla.itl_ms == 50
