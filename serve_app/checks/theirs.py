"""Check the applications of Ray Serve LLM's own builders, by Ray's own classes alone."""

from typing import Any

from ray.llm._internal.serve.serving_patterns.data_parallel.builder import DPOpenAiServingArgs
from ray.llm._internal.serve.serving_patterns.prefill_decode.builder import PDServingArgs
from ray.serve.llm import LLMServingArgs

from controller.validation import join
from serve_app.checks.findings import BUILDER, Findings, Target
from serve_app.checks.keys import unknown_keys, without
from serve_app.checks.shapes import REFINEMENTS
from serve_app.checks.values import value_problems
from serve_app.config import BLOCKS, SECURITY

BUILDERS = {
    "ray.serve.llm:build_openai_app": LLMServingArgs,
    "ray.serve.llm:build_pd_openai_app": PDServingArgs,
    "ray.serve.llm:build_dp_openai_app": DPOpenAiServingArgs,
}


def check_theirs(path: str, args: Any, where: str, target: Target, findings: Findings) -> None:
    """Report what is wrong with the arguments of the builder ``path``."""
    args = args if isinstance(args, dict) else {}
    unknown = unknown_keys(args, BUILDERS[path], REFINEMENTS)
    for key in unknown:
        said = f"is not known to {path}; import_path: {BUILDER} takes it"
        ours = key.path[-1] in (*BLOCKS, SECURITY)
        findings.add([f"{join(where, key.path)}: {said}" if ours else key.line(where)])
    held = [
        one for value in args.values() for one in (value if isinstance(value, list) else [value])
    ]
    if target.local_paths or not any(isinstance(one, str) for one in held):  # the path of an entry
        findings.add(value_problems(BUILDERS[path], without(args, unknown), where))
