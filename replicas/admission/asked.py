"""A request's class, priority and deadline. Pure.

The class is named by ``service_tier`` in the body, as stock OpenAI clients can, or by the header
``x-llm-d-inference-objective``. A gateway may set the header, so it has precedence.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.classes import (
    AUTO,
    LONGEST_TIMEOUT_S,
    MOST_PRIORITY,
    STANDARD,
    UNNAMED,
    ServiceClasses,
    unknown_class,
)
from controller.validation import shown
from replicas.admission.answers import BadRequestError

TIER = "service_tier"
OBJECTIVE = "x-llm-d-inference-objective"
# A deadline to the first token. Ray Serve reads the first name as one for the whole answer, so
# HAProxy renames it to the second (``serve_app.haproxy``).
TIMEOUT = "x-request-timeout-seconds"
DEADLINE = "x-first-token-timeout-seconds"
PRIORITY = "priority"
PROMPT = "prompt"
# From the auth middleware: the classes that the client's key may name, its default first.
KEYS_CLASSES = "x-brimful-classes"
PRIORITY_HEADER = "x-vllm-priority"
NO_FAILOVER = (b"x-brimful-failover", b"off")  # a request that must end with its engine
SHOWN = 64  # characters of a client's value in an error


@dataclass(frozen=True, slots=True)
class Asked:
    """A request's class, priority and deadline.

    Args:
        name: its class.
        named: whether it named one; then the answer names the class that served it.
        priority: as vLLM's, lower first: its own, or its class's.
        deadline_s: allowed wait for the first token, from its arrival.
        timeout_s: wait after which it gets the answer that it waited too long.
        sheddable: whether its class is.
        arrived_s: on the replica's clock.
        prompts: number of prompts.
    """

    name: str
    named: bool
    priority: int
    deadline_s: float
    timeout_s: float
    sheddable: bool
    arrived_s: float
    prompts: int = 1

    def left_s(self, now_s: float) -> float:
        """Time left for its first token; negative: it is late."""
        return min(self.deadline_s, self.timeout_s) - (now_s - self.arrived_s)


def read_request(
    headers: Mapping[str, str],
    body: Mapping[str, Any],
    classes: ServiceClasses,
    arrived_s: float,
    *,
    named_classes: bool = True,
) -> Asked:
    """Read a request's class, priority and deadline.

    Args:
        headers: by lower-case name.
        body: the JSON object, or its known part.
        named_classes: whether classes were configured; if not, names are ignored, as in vLLM.

    Raises:
        BadRequestError: naming the field, its value and what is allowed.
    """
    said = headers.get(OBJECTIVE)
    param = OBJECTIVE if said is not None else TIER
    if said is None:
        said = body.get(TIER)
    name = classes.default
    of_key = headers[KEYS_CLASSES].split(",") if named_classes and KEYS_CLASSES in headers else []
    if named_classes:
        if said is not None and not isinstance(said, str):
            raise BadRequestError(param, f"{shown(said)} is not allowed: the name of a class")
        name = _class_of(said, param, classes, of_key)
    one = classes.by_name[name]
    priority = _priority(headers, body)
    if priority is not None and of_key:
        param = PRIORITY_HEADER if PRIORITY_HEADER in headers else PRIORITY
        raise BadRequestError(param, "this API key may not set a priority; its class has one", 403)
    timeout_s = _timeout_s(headers)
    return Asked(
        name,
        named=said is not None and named_classes,
        priority=one.priority if priority is None else priority,
        deadline_s=one.deadline_s if timeout_s is None else timeout_s,
        timeout_s=one.queue_timeout_s if timeout_s is None else timeout_s,
        sheddable=one.sheddable,
        arrived_s=arrived_s,
        prompts=prompts_of(body.get(PROMPT)),
    )


def prompts_of(value: Any) -> int:
    """The number of prompts in a field; a list of token ids is one prompt."""
    several = isinstance(value, list) and any(isinstance(one, str | list | dict) for one in value)
    return len(value) if several else 1


def _class_of(said: str | None, param: str, classes: ServiceClasses, of_key: list[str]) -> str:
    """The class that a request named, or gets by default.

    Args:
        of_key: classes that its key may name, the default first; empty: any.
    """
    name = classes.named(said)
    own = said in (None, AUTO, UNNAMED, STANDARD) and said not in classes.by_name
    if of_key and own and name == classes.default:
        name = of_key[0]
    if name is None:
        raise BadRequestError(param, unknown_class(str(said), classes))
    if of_key and name not in of_key:
        may = ", ".join(of_key)
        raise BadRequestError(
            param, f"{name!r} is not allowed for this API key; allowed: {may}", 403
        )
    if name not in classes.by_name:
        known = ", ".join(classes.by_name)
        raise BadRequestError(
            param, f"this API key is for class {name!r}, this model has: {known}", 403
        )
    return name


def too_long(most_bytes: int) -> BadRequestError:
    """The error for a body over the limit."""
    return BadRequestError("body", f"longer than the {most_bytes} bytes that are allowed", 413)


def _priority(headers: Mapping[str, str], body: Mapping[str, Any]) -> int | None:
    """The request's own priority; like vLLM, the header precedes the body."""
    said: Any = headers.get(PRIORITY_HEADER)
    if said is not None:
        return _in_range(PRIORITY_HEADER, said, _whole(said))
    said = body.get(PRIORITY)
    if said is None:
        return None
    return _in_range(PRIORITY, said, None if isinstance(said, bool) else _whole(said))


def _whole(said: Any) -> int | None:
    if isinstance(said, float):
        return int(said) if said.is_integer() else None
    if isinstance(said, str) and len(said) > SHOWN:
        return None
    try:
        return int(said)
    except (TypeError, ValueError):
        return None


def _in_range(param: str, said: Any, value: int | None) -> int:
    if value is None or abs(value) > MOST_PRIORITY:
        raise BadRequestError(
            param,
            f"{shown(said)} is not allowed: a whole number from -{MOST_PRIORITY} to"
            f" {MOST_PRIORITY}, a lower one is served first",
        )
    return value


def _timeout_s(headers: Mapping[str, str]) -> float | None:
    said = headers.get(DEADLINE, headers.get(TIMEOUT))
    if said is None:
        return None
    try:
        value = float(said)
    except ValueError:
        value = math.nan
    if not 0 < value <= LONGEST_TIMEOUT_S:
        raise BadRequestError(
            TIMEOUT,
            f"{shown(said)} is not allowed: seconds to the first token, as of {DEADLINE}, above 0"
            f" and up to {LONGEST_TIMEOUT_S:g}",
        )
    return value
