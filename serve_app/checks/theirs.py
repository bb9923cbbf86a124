"""Check the applications of Ray Serve LLM's own builders, which know none of our blocks."""

from types import GenericAlias
from typing import Any

from ray.llm._internal.serve.serving_patterns.data_parallel.builder import DPOpenAiServingArgs
from ray.llm._internal.serve.serving_patterns.prefill_decode.builder import PDServingArgs
from ray.serve.llm import LLMServingArgs

from controller.validation import join
from serve_app.checks.findings import BUILDER, Findings, Target
from serve_app.checks.keys import Fields, fields_of, unknown_keys, without
from serve_app.checks.llm import serve_problems
from serve_app.checks.shapes import DEPLOYMENT, ENTRY, REFINEMENTS
from serve_app.checks.values import value_problems
from serve_app.checks.vllm_config import vllm_problems
from serve_app.config import BLOCKS, SECURITY

THEIR_ENTRY = Fields({key: kind for key, kind in ENTRY.keys.items() if key not in BLOCKS})
# Which arguments each takes, and the keys of those with entries.
BUILDERS = {
    "ray.serve.llm:build_openai_app": (LLMServingArgs, ("llm_configs",)),
    "ray.serve.llm:build_pd_openai_app": (PDServingArgs, ("prefill_config", "decode_config")),
    "ray.serve.llm:build_dp_openai_app": (DPOpenAiServingArgs, ("llm_config",)),
}


def check_theirs(path: str, args: Any, where: str, target: Target, findings: Findings) -> None:
    """Report what is wrong with the arguments of the builder ``path``."""
    kind, holders = BUILDERS[path]
    if not isinstance(args, dict):
        findings.add([f"{where}.{holders[0]}: required key is missing"])
        return
    several = "llm_configs" in holders
    entries = dict.fromkeys(holders, GenericAlias(list, (THEIR_ENTRY,)) if several else THEIR_ENTRY)
    shape = {**(fields_of(kind) or {}), "ingress_deployment_config": DEPLOYMENT, **entries}
    unknown = unknown_keys(args, Fields(shape), REFINEMENTS)
    for key in unknown:
        said = f"is not known to {path}; import_path: {BUILDER} takes it"
        ours = key.path[-1] in BLOCKS or key.path == (SECURITY,)
        findings.add([f"{join(where, key.path)}: {said}" if ours else key.line(where)])
    args = without(args, unknown)
    before, files = len(findings.problems), False
    for holder in holders:
        held = args.get(holder)
        for index, entry in enumerate(held if isinstance(held, list) else [held]):
            place = join(where, [holder, index] if isinstance(held, list) else [holder])
            files |= isinstance(entry, str)
            if isinstance(entry, dict):
                problems = serve_problems(entry, place, target)
                findings.add(
                    problems or (vllm_problems(entry, place) if target.local_paths else [])
                )
    if len(findings.problems) == before and (target.local_paths or not files):
        findings.add(value_problems(kind, {k: v for k, v in args.items() if v is not None}, where))
