"""Check the applications of Ray Serve LLM's own builders, which know none of our blocks."""

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

# Which arguments each takes, and the keys of those with an entry.
BUILDERS = {
    "ray.serve.llm:build_openai_app": (LLMServingArgs, ("llm_configs",)),
    "ray.serve.llm:build_pd_openai_app": (PDServingArgs, ("prefill_config", "decode_config")),
    "ray.serve.llm:build_dp_openai_app": (DPOpenAiServingArgs, ("llm_config",)),
}
THEIR_ENTRY = Fields({key: kind for key, kind in ENTRY.keys.items() if key not in BLOCKS})


def check_theirs(path: str, args: Any, where: str, target: Target, findings: Findings) -> None:
    """Report what is wrong with the arguments of the builder ``path``."""
    kind, holders = BUILDERS[path]
    if not isinstance(args, dict):
        findings.add([f"{where}.{holders[0]}: required key is missing"])
        return
    if SECURITY in args:
        args = _without_ours(args, (SECURITY,), where, path, findings)
    shape = {**(fields_of(kind) or {}), "ingress_deployment_config": DEPLOYMENT}
    shape |= dict.fromkeys(holders, Any)
    unknown = unknown_keys(args, Fields(shape), REFINEMENTS)
    findings.add([key.line(where) for key in unknown])
    args = without(args, unknown)
    before = len(findings.problems)
    for key in holders:
        held = args.get(key)
        if isinstance(held, list):
            args[key] = [
                _entry(one, join(where, [key, index]), path, target, findings)
                for index, one in enumerate(held)
            ]
        else:
            args[key] = _entry(held, f"{where}.{key}", path, target, findings)
    files = any(isinstance(one, str) for key in holders for one in _listed(args.get(key)))
    if len(findings.problems) == before and (target.local_paths or not files):
        findings.add(value_problems(kind, {k: v for k, v in args.items() if v is not None}, where))


def _listed(held: Any) -> list[Any]:
    return held if isinstance(held, list) else [held]


def _entry(entry: Any, where: str, path: str, target: Target, findings: Findings) -> Any:
    """The entry less what Ray would not know, which is reported."""
    if not isinstance(entry, dict):
        return entry
    entry = _without_ours(entry, BLOCKS, where, path, findings)
    unknown = unknown_keys(entry, THEIR_ENTRY, REFINEMENTS)
    findings.add([key.line(where) for key in unknown])
    entry = without(entry, unknown)
    problems = serve_problems(entry, where, target)
    findings.add(problems or (vllm_problems(entry, where) if target.local_paths else []))
    return entry


def _without_ours(
    block: dict[str, Any], ours: tuple[str, ...], where: str, path: str, findings: Findings
) -> dict[str, Any]:
    findings.add(
        [
            f"{where}.{key}: is not known to {path}; import_path: {BUILDER} takes it"
            for key in ours
            if key in block
        ]
    )
    return {key: value for key, value in block.items() if key not in ours}
