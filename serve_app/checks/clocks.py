"""Which clocks are shorter than the longest answer: Serve's, HAProxy's, and those of routes."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.config import parse_batching
from controller.validation import join, shown
from serve_app.checks.beside import backends, serve_services
from serve_app.checks.built import Built, Model, Placed
from serve_app.checks.objects import dig, listed, mapping
from serve_app.config import classes_of

# Without max_model_len, and without an ITL target: what many models have, and
# the pace of a fast card, so that an answer said to be cut really is.
TOKENS, ITL_MS = 8192, 20.0
# HAProxy's clocks: the default (None: none), and what each cuts.
HAPROXY = {
    "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": ("120", " whenever a replica comes or goes"),
    "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S": (None, " unless they are streamed"),
}
DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:([0-9]+(?:\.[0-9]*)?)s?)?")


@dataclass(frozen=True)
class Longest:
    """The longest answer: tokens, and the time that each may take."""

    tokens: int = 0
    itl_ms: float = 0.0

    @property
    def seconds(self) -> float:
        return self.tokens * self.itl_ms / 1e3

    def cut(self, place: str, given: Any, when: str = "") -> list[str]:
        """A note if a clock is shorter; zero, or no number, is no clock."""
        clock_s = seconds(given)
        if not 0 < clock_s < self.seconds:
            return []
        reached = int(clock_s * 1e3 / self.itl_ms)
        return [
            f"{place}: {shown(given)} is enough for {reached} tokens at {self.itl_ms:g} ms, and"
            f" an answer may have {self.tokens} ({self.seconds:.0f} s): longer answers are"
            f" cut{when}"
        ]


def longest(applications: Iterable[Built]) -> Longest:
    """The longest answer of these applications; one without tokens if they have no model."""
    found = [_longest(model, built) for built in applications for model in built.models.values()]
    return max(found, key=lambda one: one.seconds, default=Longest())


def serve_clocks(config: Mapping[str, Any], where: str, placed: Sequence[Placed]) -> Iterator[str]:
    """Notes on the clocks of a Serve configuration."""
    timeout_s = dig(config, "http_options", "request_timeout_s")
    place = join(where, ["http_options", "request_timeout_s"])
    yield from longest(built for _, built in placed).cut(place, timeout_s)
    for at, built in placed:
        for name, model in built.models.items():
            place = f"{at}: {name}.graceful_shutdown_timeout_s"
            answer = _longest(model, built)
            yield from answer.cut(place, model.drain_s, " if their replica is stopped")


def haproxy_clocks(place: str, env: Mapping[str, Any], answer: Longest) -> Iterator[str]:
    """Notes on HAProxy's clocks, of a container whose variables are ``env``."""
    for name, (default, when) in HAPROXY.items():
        own = "" if name in env else " (Ray's default)"
        yield from answer.cut(f"{place}.env.{name}{own}", env.get(name, default), when)


def route_clocks(
    one: Mapping[str, Any], objects: Sequence[Mapping[str, Any]], answer: Longest
) -> Iterator[str]:
    """Notes on the clocks of a route of Gateway API that leads to Serve.

    Args:
        objects: the manifest's.
    """
    leads = [place for place, name, _ in backends(one) if name in serve_services(objects)]
    for index, rule in listed(one, "spec", "rules"):
        place = join("spec.rules", [index])
        if any(lead.startswith(f"{place}.") for lead in leads):
            for key, given in mapping(rule, "timeouts").items():
                yield from answer.cut(f"{place}.timeouts.{key}", given)


def seconds(given: Any) -> float:
    """A duration as Serve or Gateway API write it, seconds; 0: not a duration."""
    found = DURATION.fullmatch(str(given))
    hours, minutes, rest = (float(n or 0) for n in found.groups()) if found else (0, 0, 0)
    return hours * 3600 + minutes * 60 + rest


def _longest(model: Model, built: Built) -> Longest:
    engine = mapping(model.entry, "engine_kwargs")
    bounds = (
        built.security.limits.max_tokens,
        engine.get("max_model_len"),
        dig(engine, "override_generation_config", "max_new_tokens"),
    )
    tokens = [one for one in bounds if isinstance(one, int) and one > 0]
    classes = classes_of(model.entry, "")
    agreed = [parse_batching(model.entry.get("batching")).sla.itl_ms]
    agreed += [one.itl_ms for one in classes.by_name.values()] if classes else []
    return Longest(min(tokens, default=TOKENS), max(filter(None, agreed), default=ITL_MS))
