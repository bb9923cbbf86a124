"""What can be said of a file, and of a ``user_config``, in a second: without Ray, without vLLM."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from controller.classes import parse_admission
from controller.config import parse_batching
from controller.errors import ConfigError
from controller.validation import join, shown
from replicas.door.settings import Security, parse_security
from replicas.engine.engine_options import option_problems
from replicas.engine.settings import parse_live, parse_settings
from serve_app.checks.findings import BUILDER, Findings, builder_of
from serve_app.config import SECURITY, classes_of, parse_scaling, ray_llm_config
from serve_app.pd import ROLES, entries_of, is_pd, pair_problems, pd_llm_config, whole_pair_problems
from serve_app.routing.settings import parse_router
from serve_app.source import parse_documents

PARSERS: tuple[Callable[[dict[str, Any], str], Any], ...] = (
    lambda entry, at: parse_batching(entry.get("batching"), f"{at}.batching"),
    lambda entry, at: parse_scaling(entry.get("scaling"), f"{at}.scaling"),
    lambda entry, at: parse_admission(entry.get("admission"), f"{at}.admission"),
    classes_of,
    lambda entry, at: parse_router(entry.get("router"), f"{at}.router"),
)
MAPPINGS = ("model_loading_config", "engine_kwargs", "deployment_config", "runtime_env")
SERVE = "spec.serveConfigV2"


def quick_check(documents: list[Any], findings: Findings) -> None:
    """Report faults in our own blocks, in the same words as the whole check."""
    several = len(documents) > 1
    for number, document in enumerate(documents, 1):
        before = f"document {number}: " if several else ""
        for config, where in configs(document, findings):
            own = Findings()
            _check_applications(config, where, own)
            findings.add([before + problem for problem in own.problems])


def configs(document: Any, findings: Findings) -> Iterator[tuple[Any, str]]:
    """The Serve configuration in a document, with its place; none in other objects."""
    if not isinstance(document, dict):
        return
    if "kind" not in document:
        yield document, ""
        return
    spec = document.get("spec")
    text: Any = spec.get("serveConfigV2") if isinstance(spec, dict) else None
    if document["kind"] == "RayService" and not isinstance(text, str):
        findings.add([f"{SERVE}: required: a Serve configuration as a block of text (`|`)"])
    elif document["kind"] == "RayService":
        try:
            yield parse_documents(text)[0], SERVE
        except ConfigError as error:
            findings.add([f"{SERVE}: {problem}" for problem in error.problems])


def shape_problems(config: Any, where: str) -> list[str]:
    """Whether it is a Serve configuration at all, down to what its applications hold."""
    if not isinstance(config, dict):
        return [f"{where or 'top level'}: must be a mapping, got {shown(config)}"]
    if "import_path" in config and "applications" not in config:
        place = where or "top level"
        return [f"{place}: is an application; it belongs in a list: applications: [{{...}}]"]
    return list(_not_mappings(config, where))


def _not_mappings(config: dict[str, Any], where: str) -> Iterator[str]:
    applications = config.get("applications")
    for index, one in enumerate(applications if isinstance(applications, list) else []):
        at = join(where, ["applications", index])
        if not isinstance(one, dict):
            yield f"{at}: must be a mapping, got {shown(one)}"
            continue
        if not isinstance(args := one.get("args") or {}, dict):
            yield f"{at}.args: must be a mapping, got {shown(args)}"
        if not isinstance(overrides := one.get("deployments") or [], list):
            yield f"{at}.deployments: must be a list, got {shown(overrides)}"
            continue
        for k, each in enumerate(overrides):
            if not isinstance(each, dict):
                place = join(at, ["deployments", k])
                yield f"{place}: must be a mapping, got {shown(each)}"


def _check_applications(config: Any, where: str, findings: Findings) -> None:
    if shape := shape_problems(config, where):
        findings.add(shape)
        return
    applications = config.get("applications")
    for index, application in enumerate(applications if isinstance(applications, list) else []):
        args = application.get("args")
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
                check_blocks(entry, key, f"{place}.{key}", security, findings)


def check_blocks(
    entry: dict[str, Any], key: str, where: str, security: Security, findings: Findings
) -> dict[str, Any] | None:
    """Report faults in the blocks of an entry; returns the entry as Ray Serve LLM takes it.

    Args:
        key: where it stands in the application's arguments.
    """
    entry, found = {k: v for k, v in entry.items() if v is not None}, Findings()
    for parse in PARSERS:
        with found.collecting():
            parse(entry, where)
    found.add(
        [
            f"{where}.{one}: must be a mapping, got {shown(entry[one])}"
            for one in MAPPINGS
            if not isinstance(entry.get(one, {}), dict)
        ]
    )
    if not found.problems:
        with found.collecting():
            if key in ROLES:
                return pd_llm_config(entry, key, where, security)
            return ray_llm_config(entry, where, security)
    findings.add(found.problems)
    return None


def live_problems(
    user_config: Any,
    entry: dict[str, Any],
    security: Security,
    where: str,
    options: Mapping[str, Any] | None = None,
) -> list[str]:
    """What running replicas of ``entry`` would refuse of ``user_config``.

    Args:
        entry: without problems of its own; with one, nothing is reported here.
        where: the place of the deployment's options.
        options: override the entry's; None: there are none.
    """
    if user_config is None and not options:
        return []
    try:
        engine = ray_llm_config(entry, where, security)["engine_kwargs"]
        settings = parse_settings(engine["additional_config"])
    except ConfigError:
        return []
    time_scale = settings.emulate.time_scale if settings.emulate else 1.0
    ordered = engine.get("scheduling_policy") == "priority"
    if not isinstance(user_config, dict | None):
        return [f"{where}.user_config: {shown(user_config)} is not allowed: a mapping"]
    try:
        deployment = {**(entry.get("deployment_config") or {}), **(options or {})}
        live = parse_live(
            user_config, settings.live, time_scale, ordered=ordered, deployment=deployment
        )
        if isinstance(size := engine.get("max_num_seqs"), int):
            live.batching.upper_bound(size)
    except ConfigError as error:
        return [f"{where}.{_in_user_config(line)}" for line in error.problems]
    place = f"{where}.user_config: with engine_kwargs"
    return option_problems(live.batching, engine, place, has_controller=True)


def _in_user_config(line: str) -> str:
    return line if line.startswith("user_config") else f"user_config.{line}"
