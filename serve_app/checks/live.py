"""Check a deployment's ``user_config`` as its replicas will: against the entry they start with."""

from collections.abc import Mapping
from typing import Any

from controller.errors import ConfigError
from controller.validation import shown
from replicas.door.settings import Security
from replicas.engine.engine_options import option_problems
from replicas.engine.settings import parse_live, parse_settings
from serve_app.config import ray_llm_config


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
