"""What Ray Serve LLM's own builders serve and ours does not."""

from collections.abc import Mapping
from typing import Any

# The way out for a model with its own server class (a reward model of Ray's examples).
ELSEWHERE = (
    ", or serve this model by import_path: ray.serve.llm:build_openai_app, without our blocks"
)


def of_ranks(args: Mapping[str, Any], where: str) -> list[str]:
    """Problems of arguments for Ray's builder of data parallel ranks; empty for others."""
    if "llm_config" not in args or "llm_configs" in args:
        return []
    return [
        f"{where}.llm_config: belongs to ray.serve.llm:build_dp_openai_app, whose data parallel"
        " ranks are not served here; keep that import_path, without our blocks, or list the model"
        " in llm_configs, a replica for each rank"
    ]
