"""Names that vLLM has moved, from their place in the installed version."""

from importlib import import_module
from typing import Any

# The newest place first.
CLI_ARGS = (
    "vllm.entrypoints.common.cli_args",  # 0.33
    "vllm.entrypoints.launchers.cli_args",  # 0.29 to 0.32
    "vllm.entrypoints.openai.cli_args",  # 0.25 to 0.27
)
PLACES = {"FrontendArgs": CLI_ARGS, "validate_parsed_serve_args": CLI_ARGS}


def moved(name: str) -> Any:
    """The object that vLLM calls ``name``.

    Raises:
        ImportError: it is in none of the known places.
    """
    for place in PLACES[name]:
        try:
            return getattr(import_module(place), name)
        except (ModuleNotFoundError, AttributeError):
            continue
    raise ImportError(f"vLLM has no {name} in {', '.join(PLACES[name])}")
