"""The ``classes`` and ``admission`` blocks: which requests go first, deadlines, and refusals."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from controller.config import A_DAY_MS, Block, Sla, slowed_ms
from controller.errors import ConfigError
from controller.validation import nearest, parse, shown

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
AUTO = "auto"  # OpenAI's clients mean by it the class that the server chooses
STANDARD = "standard_only"  # of Anthropic's clients, for the class without a commitment
UNNAMED = "default"  # the only class without a `classes` block; also OpenAI's own name
MOST_PRIORITY = 2**31 - 1
LONGEST_TIMEOUT_S = 86_400.0
OFF = "off"
# The longest wait if only an SLA is set: what gateways allow, or this multiple of the TTFT.
LONGEST_WAIT_S, LONGEST_WAIT_TTFTS = 30.0, 5.0
MOST_WAITING = 1_000_000_000  # no bound


class ServiceClass(Block):
    """The promises to one class of requests."""

    itl_ms: float | None = Field(
        None,
        gt=0,
        le=A_DAY_MS,
        description="ITL target, ms; each step of `adaptive` keeps the strictest of the classes"
        " that decode in it",
    )
    ttft_ms: float | None = Field(
        None,
        gt=0,
        le=A_DAY_MS,
        description="TTFT target and deadline, ms; none: queue_timeout_s is the deadline",
    )
    percentile: float = Field(
        99.0,
        ge=50,
        lt=100,
        description="share that must meet the targets, %: of requests for ttft_ms, of tokens"
        " for itl_ms",
    )
    priority: int = Field(
        0,
        ge=-MOST_PRIORITY,
        le=MOST_PRIORITY,
        description="as in vLLM: a lower number is served first and preempted last",
    )
    sheddable: bool = Field(
        False,
        description="true: requests are refused early, once the queue holds"
        " admission.shed_at of its capacity",
    )
    queue_timeout_s: float = Field(
        30.0,
        gt=0,
        le=LONGEST_TIMEOUT_S,
        description="a request without a first token after this time is answered with 503",
    )
    autoscale: bool = Field(
        True,
        description="true: requests count as demand for autoscaling; false suits batches",
    )
    default: bool = Field(False, description="the class of requests that name none")
    aliases: list[str] = Field(
        [],
        description="other values of service_tier that mean this class, such as OpenAI's flex,"
        " priority, scale",
    )

    @property
    def deadline_s(self) -> float:
        """How long its requests may wait for the first token, seconds."""
        return self.queue_timeout_s if self.ttft_ms is None else self.ttft_ms / 1000


class AdmissionConfig(Block):
    """How a replica decides which requests may wait."""

    removed: ClassVar[Mapping[str, str]] = {
        "max_body_mb": "security.limits.max_body_mb bounds a request's body"
    }

    shed_at: float = Field(
        0.9,
        gt=0,
        le=1,
        description="share of the queue's capacity above which requests of"
        " sheddable classes are refused",
    )
    max_waiting: int | None = Field(
        None,
        ge=1,
        description="most waiting requests of this or a higher priority, in addition to"
        " running ones; all priorities together: twice as many; none: twice"
        " max_num_seqs, and no limit without classes if longest_wait_s is set or admission is not",
    )
    longest_wait_s: float | Literal["off"] | None = Field(
        None,
        description="longest predicted wait for the first token, s; longer ones are refused;"
        " off: no limit but the client's own deadline; none: 30 or 5 x ttft_ms, the"
        " longer of the two, if batching.sla is set and neither classes nor"
        " admission is, else the TTFT target; not allowed with classes",
    )

    @field_validator("longest_wait_s", mode="before")
    @classmethod
    def _seconds_or_off(cls, given: Any) -> Any:
        if given is None or given is False or given == OFF:  # YAML reads a plain off as false
            return None if given is None else OFF
        if isinstance(given, int | float) and 0 < given <= LONGEST_TIMEOUT_S and given is not True:
            return float(given)
        raise ValueError(f"seconds above 0 and up to {LONGEST_TIMEOUT_S:g}, or off")


@dataclass(frozen=True)
class ServiceClasses:
    """The classes by name, one of which is the default."""

    by_name: Mapping[str, ServiceClass]

    @property
    def default(self) -> str:
        """The name of the class for requests without one."""
        return next(name for name, one in self.by_name.items() if one.default)

    def named(self, name: str | None) -> str | None:
        """The class for ``name`` as a client wrote it; None: no such class.

        ``name`` may be an alias. OpenAI's ``auto`` is the default class; so are its ``default`` and
        Anthropic's ``standard_only`` if no class has that name.
        """
        if name in self.by_name:
            return name
        for known, one in self.by_name.items():
            if name in one.aliases:
                return known
        return self.default if name in (None, AUTO, UNNAMED, STANDARD) else None

    def to_wire(self) -> dict[str, dict[str, Any]]:
        """Plain data, which ``parse_classes`` reads."""
        return {name: one.model_dump() for name, one in self.by_name.items()}

    def slowed(self, time_scale: float) -> "ServiceClasses":
        """The classes with latencies ``time_scale`` times as long."""
        return ServiceClasses(
            {
                name: one.model_copy(
                    update={
                        "itl_ms": slowed_ms(one.itl_ms, time_scale),
                        "ttft_ms": slowed_ms(one.ttft_ms, time_scale),
                    }
                )
                for name, one in self.by_name.items()
            }
        )


def parse_classes(data: Any, where: str = "classes") -> ServiceClasses:
    """The ``classes`` block from plain data: name to ``ServiceClass``.

    A single class is the default; of several, the one with ``default: true``.

    Raises:
        ConfigError: naming each wrong key, its value and what is allowed.
    """
    if not isinstance(data, Mapping) or not data:
        raise ConfigError([f"{where}: {shown(data)} is not allowed: a mapping of names to classes"])
    found: list[str] = []
    parsed: dict[str, ServiceClass] = {}
    for name, settings in data.items():
        if not isinstance(name, str) or not NAME.fullmatch(name) or name == AUTO:
            found.append(
                f"{where}: {shown(name)} is not allowed as a name: up to 64 of letters, digits,"
                f" . _ -, and not {AUTO!r}, by which OpenAI's clients mean the default class"
            )
            continue
        try:
            parsed[name] = parse(
                ServiceClass, {} if settings is None else settings, f"{where}.{name}"
            )
        except ConfigError as error:
            found += error.problems
    found += _wrong_aliases(parsed, where)
    if not found and len(parsed) == 1:
        parsed = {name: one.model_copy(update={"default": True}) for name, one in parsed.items()}
    defaults = [name for name, one in parsed.items() if one.default]
    if not found and len(defaults) != 1:
        marked = ", ".join(defaults) or "none"
        found.append(f"{where}: one class must have default: true, got {marked}")
    if found:
        raise ConfigError(found)
    return ServiceClasses(parsed)


def _wrong_aliases(classes: Mapping[str, ServiceClass], where: str) -> list[str]:
    """Invalid aliases, and aliases that two classes have."""
    found = []
    taken = {name: name for name in classes}
    for name, one in classes.items():
        for alias in one.aliases:
            if not NAME.fullmatch(alias) or alias in (AUTO, UNNAMED):
                said = f"a name as classes have, and not {AUTO!r} or {UNNAMED!r}"
            elif alias in taken:
                said = f"class {taken[alias]!r} has that name"
            else:
                taken[alias] = name
                continue
            found.append(f"{where}.{name}.aliases: {shown(alias)} is not allowed: {said}")
    return found


def one_class(ttft_ms: float | None) -> ServiceClasses:
    """Without a ``classes`` block: one class with the SLA's time to first token, ms."""
    return ServiceClasses({UNNAMED: ServiceClass(ttft_ms=ttft_ms, default=True)})


def guarded(classes: bool, admission: bool, sla: Sla) -> bool:
    """Whether a replica refuses requests: with either block, or with an SLA."""
    return classes or admission or sla.itl_ms is not None or sla.ttft_ms is not None


def let_in_by(
    classes: ServiceClasses | None, admission: AdmissionConfig | None, sla: Sla
) -> tuple[ServiceClasses, AdmissionConfig]:
    """The classes and settings of admission.

    Each class has its own deadline. Without classes there is one. With an ``admission`` block
    without ``longest_wait_s``, its deadline is the SLA's TTFT. Otherwise it is the longest wait,
    and requests are refused neither for the length of the queue nor for the time they have waited.
    """
    if classes is not None:
        return classes, admission or AdmissionConfig()
    if admission is not None and admission.longest_wait_s is None:
        return one_class(sla.ttft_ms), admission
    config = admission or AdmissionConfig()
    wait_s = config.longest_wait_s
    if wait_s is None and guarded(classes=False, admission=False, sla=sla):
        wait_s = max(LONGEST_WAIT_S, LONGEST_WAIT_TTFTS * (sla.ttft_ms or 0.0) / 1000)
    wait_ms = A_DAY_MS if wait_s is None or wait_s == "off" else min(1000 * wait_s, A_DAY_MS)
    one = ServiceClass(ttft_ms=wait_ms, queue_timeout_s=LONGEST_TIMEOUT_S, default=True)
    most = config.max_waiting or MOST_WAITING
    config = config.model_copy(update={"longest_wait_s": wait_s, "max_waiting": most})
    return ServiceClasses({UNNAMED: one}), config


def parse_admission(data: Any, where: str = "admission") -> AdmissionConfig:
    """The ``admission`` block from plain data (None: all defaults).

    Raises:
        ConfigError: naming each wrong key, its value and what is allowed.
    """
    return parse(AdmissionConfig, {} if data is None else data, where)


def unknown_class(name: str, known: ServiceClasses) -> str:
    """What to tell a client that names an unknown class."""
    names = ", ".join(
        f"{name} ({', '.join(one.aliases)})" if one.aliases else name
        for name, one in known.by_name.items()
    )
    hint = nearest(name, known.by_name)
    return f"{name[:64]!r} is not a class of this model; known: {names}" + (
        f"; {hint}" if hint.startswith("did") else ""
    )
