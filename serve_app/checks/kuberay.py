"""Fields of a RayService that its schema takes and that contradict each other."""

from collections.abc import Iterator, Mapping
from typing import Any

from controller.validation import join
from serve_app.checks.findings import Findings
from serve_app.checks.objects import CLUSTER, containers, dig, listed, mapping, ray_pods
from serve_app.checks.values import line

INCREMENTAL = "NewClusterWithIncrementalUpgrade"
STRATEGIES = ("None", "NewCluster", INCREMENTAL)
STRATEGY, OPTIONS = "spec.upgradeStrategy.type", "spec.upgradeStrategy.clusterUpgradeOptions"
FAULT_TOLERANCE = f"{CLUSTER}.gcsFaultToleranceOptions"
REDIS_ENV = ("RAY_REDIS_ADDRESS",)
REDIS_PARAMS = ("redis-password", "redis-username")


def check_options(service: Mapping[str, Any], findings: Findings) -> None:
    """Report contradictions in how clusters are upgraded, and in what outlives the head."""
    findings.add([*_upgrade(service), *_fault_tolerance(service)])


def _upgrade(service: Mapping[str, Any]) -> Iterator[str]:
    strategy = mapping(service, "spec", "upgradeStrategy")
    kind, options = strategy.get("type"), strategy.get("clusterUpgradeOptions")
    if kind is not None and kind not in STRATEGIES:
        yield line(STRATEGY, kind, f"must be {' or '.join(STRATEGIES)}")
        return
    if kind != INCREMENTAL:
        if options is not None:
            yield f"{OPTIONS}: has no effect unless upgradeStrategy.type is {INCREMENTAL}"
        return
    if not isinstance(options, Mapping):
        yield f"{OPTIONS}: required key is missing; {INCREMENTAL} needs it"
        return
    for key, least in (("stepSizePercent", 1), ("maxSurgePercent", 1)):
        value = options.get(key)
        if isinstance(value, int) and not least <= value <= 100:
            yield line(f"{OPTIONS}.{key}", value, f"must be from {least} to 100")
    interval = options.get("intervalSeconds")
    if isinstance(interval, int) and interval < 1:
        yield line(f"{OPTIONS}.intervalSeconds", interval, "must be 1 or more")
    if not mapping(service, "spec", "rayClusterConfig").get("enableInTreeAutoscaling"):
        yield (
            f"{CLUSTER}.enableInTreeAutoscaling: must be true with {INCREMENTAL}: else the old"
            " cluster keeps its workers while the new one starts all of its own"
        )


def _fault_tolerance(service: Mapping[str, Any]) -> Iterator[str]:
    cluster = mapping(service, "spec", "rayClusterConfig")
    options = cluster.get("gcsFaultToleranceOptions")
    if not isinstance(options, Mapping):
        return
    if options.get("backend") in (None, "redis") and not options.get("redisAddress"):
        yield f"{FAULT_TOLERANCE}.redisAddress: required key is missing: HOST:PORT of Redis"
    for pods in ray_pods(service):
        for place, container in containers(pods):
            for index, one in listed(container, "env"):
                if (name := one.get("name")) in REDIS_ENV:
                    yield (
                        f"{join(place, ['env', index])}.name: {name} is set beside"
                        " gcsFaultToleranceOptions, which says it to Ray; take one away"
                    )
    params = mapping(cluster, "headGroupSpec", "rayStartParams")
    for name in REDIS_PARAMS:
        if name in params:
            yield (
                f"{CLUSTER}.headGroupSpec.rayStartParams.{name}: is set beside"
                " gcsFaultToleranceOptions, which says it to Ray; take one away"
            )
    annotated = dig(service, "metadata", "annotations", "ray.io/ft-enabled")
    if str(annotated).lower() == "false":
        yield (
            "metadata.annotations.ray.io/ft-enabled: 'false' is not allowed:"
            " gcsFaultToleranceOptions is set"
        )
