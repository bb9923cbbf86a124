"""What Ray Serve would leave out of account, or take in the policy's place, without a word."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from controller.validation import join
from serve_app.autoscaling_block import AUTOSCALING_POLICY, names_function
from serve_app.checks.objects import mapping

ITS_DEFAULT = "Ray Serve goes by its own policy then, for a target of 2 ongoing requests"


def scaling_problems(
    deployments: Sequence[Any], entries: Sequence[dict[str, Any]], where: str
) -> list[str]:
    """Overrides by which a model would scale without a policy that somebody has named.

    Ray Serve puts the override in the place of the whole block, not over its keys.

    Args:
        deployments: the application's ``deployments``.
        where: their place.
    """
    names = [_deployment_name(entry) for entry in entries]
    found = []
    for index, override in enumerate(deployments):
        if not isinstance(override, dict):
            continue
        name = _model_part(override.get("name"))
        if name not in names:
            continue
        block, entry = override.get("autoscaling_config"), entries[names.index(name)]
        scales = _scales(mapping(entry, "deployment_config"))
        auto = override.get("num_replicas") == "auto"
        if auto and scales and not block:
            continue  # the entry's block stays, and with it its policy
        if auto and block is None:
            found.append(
                f"{join(where, [index])}.num_replicas: auto, and the entry's deployment_config has"
                f" no autoscaling_config; {ITS_DEFAULT}. Set num_replicas: auto in the entry"
            )
        if isinstance(block, dict) and not names_function(block.get("policy")):
            place = join(where, [index, "autoscaling_config"])
            found.append(
                f"{place}: takes the place of the entry's whole block and names no policy;"
                f" {ITS_DEFAULT}. Put these keys into the entry's deployment_config, or add"
                f" policy: {{policy_function: '{AUTOSCALING_POLICY}', policy_kwargs: {{...}}}} with"
                " every key of scaling"
            )
    return found


def _scales(deployment: Mapping[str, Any]) -> bool:
    given = deployment.get("autoscaling_config")
    return bool(given) or deployment.get("num_replicas") == "auto"


def scaling_notes(
    entry: dict[str, Any], deployments: Sequence[Any], where: str, overrides_at: str
) -> Iterator[str]:
    """What is accepted and does less than its name says.

    Args:
        deployments: the application's ``deployments``, the place of which is ``overrides_at``.
    """
    deployment = mapping(entry, "deployment_config")
    autoscaling = mapping(deployment, "autoscaling_config")
    if "target_ongoing_requests" in autoscaling and autoscaling.get("policy") is None:
        yield (
            f"{where}.deployment_config.autoscaling_config.target_ongoing_requests: has no effect;"
            " replicas follow scaling.target_utilization, of the capacity that is measured"
        )
    held = [(f"{where}.deployment_config", deployment)]
    name = _deployment_name(entry)
    held += [
        (join(overrides_at, [index]), override)
        for index, override in enumerate(deployments)
        if isinstance(override, dict) and _model_part(override.get("name")) == name
    ]
    for place, options in held:
        yield from _outside(entry, options.get("max_ongoing_requests"), place)
    for place, options in held[1:]:
        count = options.get("num_replicas")
        # Where an entry says nothing, Ray Serve LLM has one replica to scale between 1 and 1.
        fixed = isinstance(deployment.get("num_replicas"), int)
        if isinstance(count, int) and not fixed and "autoscaling_config" not in options:
            yield (
                f"{place}.num_replicas: {count} has no effect, as the deployment scales by its"
                " autoscaling_config (Ray Serve LLM gives it one where the entry has none);"
                " add autoscaling_config: null for a fixed number"
            )


def _outside(entry: dict[str, Any], ongoing: Any, where: str) -> Iterator[str]:
    """Where Ray Serve holds requests back that the engine would take."""
    sizes = {
        "batching.max_running.max": mapping(mapping(entry, "batching"), "max_running").get("max"),
        "engine_kwargs.max_num_seqs": mapping(entry, "engine_kwargs").get("max_num_seqs"),
    }
    known = {name: size for name, size in sizes.items() if isinstance(size, int)}
    if not known or not isinstance(ongoing, int):
        return
    name = min(known, key=lambda one: known[one])
    if ongoing < known[name]:
        yield (
            f"{where}.max_ongoing_requests: {ongoing} is below {name} ({known[name]}): no more"
            " requests reach the engine, and the rest wait outside it, in no order of priorities."
            " Capacity and autoscaling go by it"
        )


def _deployment_name(entry: dict[str, Any]) -> str | None:
    own = mapping(entry, "deployment_config").get("name")
    if isinstance(own, str):
        return own
    model = mapping(entry, "model_loading_config").get("model_id")
    # As Ray Serve LLM makes it.
    return model.replace("/", "--").replace(".", "_") if isinstance(model, str) else None


def _model_part(name: Any) -> str:
    """What follows the class in ``BrimfulServer:model``."""
    return name.partition(":")[2] if isinstance(name, str) else ""
