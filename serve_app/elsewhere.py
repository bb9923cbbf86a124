"""What Ray Serve LLM's own builders serve, and this project's does not."""

from collections.abc import Mapping
from typing import Any

# What a model with a server class of its own (a reward model of Ray's examples) can do.
ELSEWHERE = (
    ", or serve this model by import_path: ray.serve.llm:build_openai_app, without our blocks"
)
SPLIT = ("prefill_config", "decode_config")


def split_problems(args: Mapping[str, Any], where: str) -> list[str]:
    """Arguments of Ray's builder for prefill and decode in engines of their own."""
    return [
        f"{where}.{key}: is not taken here: a replica is one engine for prefill and decode; use"
        " import_path: ray.serve.llm:build_pd_openai_app, without our blocks"
        for key in SPLIT
        if key in args
    ]
