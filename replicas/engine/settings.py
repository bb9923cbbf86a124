"""Brimful's settings of an engine: ``additional_config["brimful"]`` of its configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from controller.classes import (
    AdmissionConfig,
    ServiceClass,
    ServiceClasses,
    guarded,
    let_in_by,
    parse_admission,
    parse_classes,
)
from controller.config import BatchingConfig, Block, Sla, parse_batching, slowed_ms
from controller.errors import ConfigError
from controller.request_slo import differ
from controller.validation import parse, shown
from replicas.door.settings import Security, parse_security
from replicas.engine.executor import Executor
from replicas.profiles.disturbances import Disturbances

PLACE = "additional_config.brimful"
PdRole = Literal["prefill", "decode"]


class EmulateSettings(Block):
    """An accelerator that is only emulated (``replicas.emulator.executor``)."""

    removed: ClassVar[Mapping[str, str]] = {
        "noise_cv": "it stands in disturbances",
        "slow_replicas": "all replicas of an entry have one speed, its time_scale",
        "slow_factor": "all replicas of an entry have one speed, its time_scale",
        "seed": "disturbances and tokens are drawn in one order",
    }

    profile: str = Field(description="step-time profile: a name, or FILE[:NAME]")
    kv_tokens: int | None = Field(None, gt=0, description="KV memory, tokens; none: the profile's")
    time_scale: float = Field(
        1.0,
        gt=0,
        description="factor on step times and the SLA; above 1, a machine emulates a larger fleet",
    )
    disturbances: Disturbances = Field(
        Disturbances(), description="random disturbances of step times"
    )


class FailoverConfig(Block):
    """What becomes of the answers of an engine that dies."""

    relay_s: float = Field(
        60.0,
        ge=0,
        le=1800,
        description="how long the replica of a dead engine relays the tokens of other replicas"
        " to its clients, s; 0: not at all",
    )
    wait_s: float = Field(
        20.0,
        gt=0,
        le=1800,
        description="longest wait for the next token of a moved request,"
        " s; then the answer ends with an error",
    )
    hang_s: float | None = Field(
        30.0,
        ge=1,
        description="time without a sign of life after which an engine with"
        " requests counts as dead, s; none: never",
    )


SHORT = tuple(Sla.model_fields)  # of batching.sla, for a command line: brimful.itl_ms


class EngineSettings(Block):
    """The whole block; without any key it gives the default policy.

    ``itl_ms``, ``ttft_ms`` and ``percentile`` may stand in it for those of ``batching.sla``.
    """

    shorthand: ClassVar = SHORT

    batching: BatchingConfig = BatchingConfig()
    enforce: Literal["on"] | None = Field(
        None, description="on: limits are applied by a vLLM that was not tested, too"
    )
    leased: bool = Field(False, description="a controller is expected, and hands out leases")
    group: str | None = Field(None, description="whose statistics are pooled; None: none")
    role: PdRole | None = Field(None, description="its part of a request; None: the whole request")
    classes: dict[str, ServiceClass] | None = Field(
        None, description="who is served first; None: all alike"
    )
    admission: AdmissionConfig | None = None
    security: Security = Field(Security(), description="what the replica's HTTP ingress lets in")
    emulate: EmulateSettings | None = None
    failover: FailoverConfig = Field(
        FailoverConfig(), description="what happens to open answers if an engine dies"
    )
    executor: Executor | None = Field(
        None, description="where the model runs; None: as the engine was started"
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or not (short := given.keys() & set(SHORT)):
            return given
        if given.get("batching") is not None:
            raise ValueError(
                f"{min(short)} with batching is not allowed; write batching.sla.{min(short)}"
            )
        rest = {key: value for key, value in given.items() if key not in short}
        return {**rest, "batching": {"sla": {key: given[key] for key in short}}}

    @property
    def checked(self) -> BatchingConfig:
        """The block that engine options must suit: prompts are also cut for a class's ITL."""
        itl_ms = min((c.itl_ms for c in (self.classes or {}).values() if c.itl_ms), default=None)
        sla = self.batching.sla
        if sla.itl_ms is not None or not differ(self.live.classes):
            return self.batching
        return self.batching.model_copy(update={"sla": sla.model_copy(update={"itl_ms": itl_ms})})

    @property
    def live(self) -> "Live":
        """The blocks that a ``user_config`` may change."""
        classes = None if self.classes is None else ServiceClasses(self.classes)
        return Live(self.batching, classes, self.admission, self.security)


def parse_settings(additional_config: Any) -> EngineSettings:
    """The settings in vLLM's ``additional_config``, which holds other projects' keys too.

    Raises:
        ConfigError: naming each wrong key of ours, its value and what is allowed.
    """
    # vLLM also allows an object with a hash here, which is another program's.
    ours = additional_config.get("brimful") if isinstance(additional_config, dict) else None
    return parse(EngineSettings, {} if ours is None else ours, PLACE)


class LiveSettings(Block):
    """A deployment's ``user_config``: what reaches running engines without a restart."""

    batching: dict[str, Any] | None = Field(None, description="in place of the entry's own block")
    classes: dict[str, Any] | None = Field(None, description="in place of the entry's own block")
    admission: dict[str, Any] | None = Field(None, description="in place of the entry's own block")
    security: dict[str, Any] | None = Field(
        None, description="in place of the application's own block"
    )


@dataclass(frozen=True, slots=True)
class Live:
    """The blocks that may change while an engine runs.

    Args:
        classes: None if none were configured.
        admission: None if no such block was given.
    """

    batching: BatchingConfig
    classes: ServiceClasses | None = None
    admission: AdmissionConfig | None = None
    security: Security = field(default_factory=Security)

    @property
    def guarded(self) -> bool:
        """Whether requests may be refused; fixed when the replica starts."""
        blocks = self.classes is not None, self.admission is not None
        return guarded(*blocks, self.batching.sla)

    def let_in_by(self) -> tuple[ServiceClasses, AdmissionConfig]:
        """The classes and settings of admission."""
        return let_in_by(self.classes, self.admission, self.batching.sla)


def parse_live(
    user_config: Any,
    entry_blocks: Live,
    time_scale: float,
    *,
    ordered: bool = True,
    deployment: Mapping[str, Any] | None = None,
) -> Live:
    """The blocks of a ``user_config``; the entry's own if it has none.

    Args:
        entry_blocks: the entry's own, which the replica was deployed with.
        time_scale: of an emulated accelerator, which stretches latencies; 1: a real one.
        ordered: whether the engine serves by priority; fixed when it starts.
        deployment: its options; None: unknown.

    Raises:
        ConfigError: naming each wrong key, its value and what is allowed.
    """
    where = "user_config"
    asked = parse(LiveSettings, {} if user_config is None else user_config, where)
    batching, classes, admission = (
        entry_blocks.batching,
        entry_blocks.classes,
        entry_blocks.admission,
    )
    if asked.batching is not None:
        batching = slowed(parse_batching(asked.batching, f"{where}.batching"), time_scale)
    if asked.classes is not None:
        classes = parse_classes(asked.classes, f"{where}.classes").slowed(time_scale)
        if not ordered and len({one.priority for one in classes.by_name.values()}) > 1:
            raise ConfigError(
                [
                    f"{where}.classes: several priorities are not allowed: the engine was started"
                    " with classes of one priority, and serves in the order of arrival"
                ]
            )
    if asked.admission is not None:
        admission = parse_admission(asked.admission, f"{where}.admission")
    security = live_security(user_config, entry_blocks.security)
    found = role_problems(batching, f"{where}.batching", deployment)
    if batching.roles is not None and entry_blocks.batching.roles is None:
        found.append(
            f"{where}.batching.roles: is not allowed if the entry has none: the replica was"
            " started without roles"
        )
    if (
        asked.classes is not None
        and entry_blocks.classes is None
        and entry_blocks.admission is None
    ):
        found.append(
            f"{where}.classes: is not allowed if the entry has neither classes nor admission:"
            " the replica was started without them"
        )
    if asked.admission is not None and not entry_blocks.guarded:
        found.append(
            f"{where}.admission: is not allowed if the entry has neither an SLA nor classes nor"
            " admission: the replica was started without them"
        )
    found += wait_problems(classes, admission, where)
    if found:
        raise ConfigError(found)
    return Live(batching, classes, admission, security)


def wait_problems(
    classes: ServiceClasses | None, admission: AdmissionConfig | None, where: str
) -> list[str]:
    """Problems with ``admission.longest_wait_s``."""
    if classes is None or admission is None or admission.longest_wait_s is None:
        return []
    said = f"{shown(admission.longest_wait_s)} is not allowed with classes, each of which has its"
    return [f"{where}.admission.longest_wait_s: {said} own: ttft_ms, or queue_timeout_s"]


def live_security(user_config: Any, app_security: Security) -> Security:
    """The ``security`` block that a ``user_config`` asks for; the application's if it has none.

    Without ``keys`` in the block API keys stay: new limits must not admit clients without a key.

    Raises:
        ConfigError: see ``parse_live``.
    """
    where = "user_config"
    asked = parse(LiveSettings, {} if user_config is None else user_config, where)
    if asked.security is None:
        return app_security
    security = parse_security(asked.security, f"{where}.security")
    if "keys" not in asked.security:
        security = security.model_copy(update={"keys": app_security.keys})
    return security


def prefill_problems(batching: Any, where: str) -> list[str]:
    """Problems with a prefill engine's ``batching`` block, as written."""
    sla = batching.get("sla") if isinstance(batching, dict) else None
    itl_ms = sla.get("itl_ms") if isinstance(sla, dict) else None
    if itl_ms is None:
        return []
    return [
        f"{where}.sla.itl_ms: {shown(itl_ms)} is not allowed: a prefill engine makes one token of"
        " each answer, and has no time between tokens; set it in decode_config. Allowed here:"
        " ttft_ms, percentile"
    ]


def role_problems(
    batching: BatchingConfig,
    where: str,
    deployment: Mapping[str, Any] | None = None,
    place: str = "deployment_config",
) -> list[str]:
    """Problems of a batching block with ``roles``.

    Args:
        deployment: its options, with the number of replicas; None: unknown.
        place: where these options are, for messages.
    """
    if batching.roles is None:
        return []
    found = []
    if batching.policy != "adaptive":
        found.append(
            f"{where}.policy: {shown(batching.policy)} is not allowed with roles: adaptive, whose"
            " chunk of prompts a role sets"
        )
    if batching.sla.itl_ms is None:
        found.append(
            f"{where}.sla.itl_ms: None is not allowed with roles: a time, which decides how"
            " prefill and decode are split"
        )
    prefill = batching.roles.prefill
    if deployment is None or prefill == "auto":
        return found
    # At most the least number of replicas: the controller always keeps one decoding, and a lone
    # one is mixed. But fewer than the most, so that one can decode.
    (key, fewest), (_, most) = replica_bounds(deployment)
    if prefill > (allowed := min(fewest, most - 1)):
        found.append(
            f"{where}.roles.prefill: {prefill} is not allowed with {place}.{key}: {fewest}: at most"
            f" {allowed} of so few replicas"
        )
    return found


def replica_bounds(deployment: Mapping[str, Any]) -> tuple[tuple[str, int], tuple[str, int]]:
    """The least and the most replicas of a deployment, each with the name of its option."""
    scaling, count = deployment.get("autoscaling_config"), deployment.get("num_replicas")
    if not scaling and count != "auto":
        fixed = "num_replicas", count if isinstance(count, int) else 1
        return fixed, fixed
    given = scaling if isinstance(scaling, Mapping) else getattr(scaling, "__dict__", {})

    def bound(key: str, default: int) -> tuple[str, int]:
        value = given.get(key)
        return f"autoscaling_config.{key}", value if isinstance(value, int) else default

    # Ray Serve's own defaults.
    return bound("min_replicas", 1), bound("max_replicas", 100 if count == "auto" else 1)


def slowed(batching: BatchingConfig, time_scale: float) -> BatchingConfig:
    """The block with latencies ``time_scale`` times as long."""
    sla = batching.sla
    latencies = {
        key: slowed_ms(value, time_scale)
        for key, value in (("itl_ms", sla.itl_ms), ("ttft_ms", sla.ttft_ms))
    }
    return batching.model_copy(update={"sla": sla.model_copy(update=latencies)})
