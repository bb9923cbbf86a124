"""Variables of runtime environments that Ray would refuse only when it is too late."""

from typing import Any

from controller.validation import shown


def variable_problems(entry: dict[str, Any], where: str) -> list[str]:
    """Variables in an entry of ``llm_configs`` that are not text.

    Ray looks at them only after it has reserved a replica's place, which it then never frees.
    """
    own = f"{where}.deployment_config.ray_actor_options"
    deployment = entry.get("deployment_config")
    actor = deployment.get("ray_actor_options") if isinstance(deployment, dict) else None
    found = []
    for place, holder in ((where, entry), (own, actor)):
        block = holder.get("runtime_env") if isinstance(holder, dict) else None
        if isinstance(block, dict):
            found += text_problems(block.get("env_vars"), f"{place}.runtime_env.env_vars")
    return found


def text_problems(variables: Any, where: str) -> list[str]:
    """Values of ``env_vars`` that are not text."""
    if variables is not None and not isinstance(variables, dict):
        return [f"{where}: {shown(variables)} is not allowed: it must be a mapping"]
    return [
        f"{where}.{name}: {shown(value)} is not allowed: must be a string (quote it)"
        for name, value in (variables or {}).items()
        if not isinstance(value, str)
    ]
