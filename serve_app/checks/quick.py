"""What can be said of a file in a second: without Ray, without vLLM."""

from collections.abc import Callable, Iterator
from typing import Any

from controller.classes import parse_admission
from controller.config import parse_batching
from controller.errors import ConfigError
from controller.validation import join
from replicas.door.settings import Security, parse_security
from serve_app.checks.findings import BUILDER, Findings, builder_of
from serve_app.config import SECURITY, classes_of, parse_scaling, ray_llm_config
from serve_app.pd import entries_of, is_pd, pair_problems, whole_pair_problems
from serve_app.routing.settings import parse_router
from serve_app.source import parse_documents

PARSERS: dict[str, Callable[[dict[str, Any], str], Any]] = {
    "batching": lambda entry, at: parse_batching(entry.get("batching"), f"{at}.batching"),
    "scaling": lambda entry, at: parse_scaling(entry.get("scaling"), f"{at}.scaling"),
    "admission": lambda entry, at: parse_admission(entry.get("admission"), f"{at}.admission"),
    "classes": classes_of,
    "router": lambda entry, at: parse_router(entry.get("router"), f"{at}.router"),
}
MAPPINGS = ("model_loading_config", "engine_kwargs", "deployment_config", "runtime_env")
SERVE = "spec.serveConfigV2"


def quick_check(documents: list[Any], findings: Findings) -> None:
    """Report faults in our own blocks, in the lines that the whole check has for them."""
    several = len(documents) > 1
    for number, document in enumerate(documents, 1):
        before = f"document {number}: " if several else ""
        for config, where in _configs(document, findings):
            for entry, place, security in _entries(config, where, findings):
                own = Findings()
                _check_entry(entry, place, security, own)
                findings.add([before + problem for problem in own.problems])


def _configs(document: Any, findings: Findings) -> Iterator[tuple[Any, str]]:
    if not isinstance(document, dict):
        return
    if "kind" not in document:
        yield document, ""
        return
    spec = document.get("spec")
    text = spec.get("serveConfigV2") if isinstance(spec, dict) else None
    if document.get("kind") == "RayService" and isinstance(text, str):
        try:
            yield parse_documents(text)[0], SERVE
        except ConfigError as error:
            findings.add([f"{SERVE}: {problem}" for problem in error.problems])


def _entries(
    config: Any, where: str, findings: Findings
) -> Iterator[tuple[dict[str, Any], str, Security]]:
    applications = config.get("applications") if isinstance(config, dict) else None
    for index, application in enumerate(applications if isinstance(applications, list) else []):
        args = application.get("args") if isinstance(application, dict) else None
        if not isinstance(args, dict) or builder_of(application) != BUILDER:
            continue
        place = join(where, ["applications", index, "args"])
        security = Security()
        with findings.collecting():
            security = parse_security(args.get(SECURITY), f"{place}.{SECURITY}")
        if is_pd(args):
            findings.add(pair_problems(args, place) or whole_pair_problems(args, place))
        for key, entry in entries_of(args):
            if isinstance(entry, dict):
                yield entry, f"{place}.{key}", security


def _check_entry(entry: dict[str, Any], where: str, security: Security, found: Findings) -> None:
    entry = {key: value for key, value in entry.items() if value is not None}
    for parse in PARSERS.values():
        with found.collecting():
            parse(entry, where)
    whole = all(isinstance(entry.get(key, {}), dict) for key in MAPPINGS)
    if not found.problems and whole:
        with found.collecting():
            ray_llm_config(entry, where, security)
