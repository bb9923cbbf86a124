"""What one request is promised by its class, and how the engine hears of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.classes import ServiceClass, ServiceClasses
from controller.config import Sla

# In vLLM's ``SamplingParams.extra_args``, which go to the engine with the request. If classes
# are configured the replica's own gate writes it, over whatever a client may have put there.
KEY = "brimful"


@dataclass(frozen=True, slots=True)
class RequestSlo:
    """The SLO of one request.

    Args:
        itl_s: time between tokens, seconds; infinite: none is agreed.
        percentile: of its gaps between tokens, this many % are to be within it.
        ttft_s: time to first token, seconds; infinite: none is agreed.
        autoscale: whether it counts for autoscaling; no part of the SLO, it goes with it.
    """

    itl_s: float = math.inf
    percentile: float = 99.0
    ttft_s: float = math.inf
    autoscale: bool = field(default=True, compare=False)

    @property
    def bounded(self) -> bool:
        """Whether a time between tokens is agreed."""
        return self.itl_s < math.inf

    def to_wire(self) -> dict[str, Any]:
        """As plain data, of which ``slo_of`` makes the same."""
        return {
            "itl_s": self.itl_s if self.bounded else None,
            "percentile": self.percentile,
            "ttft_s": self.ttft_s if self.ttft_s < math.inf else None,
            "autoscale": self.autoscale,
        }


def slo_of(wire: Mapping[str, Any]) -> RequestSlo:
    """What ``RequestSlo.to_wire`` made this of."""
    itl_s, ttft_s = wire["itl_s"], wire["ttft_s"]
    return RequestSlo(
        math.inf if itl_s is None else itl_s,
        wire["percentile"],
        math.inf if ttft_s is None else ttft_s,
        wire.get("autoscale", True),
    )


def of_class(one: ServiceClass) -> RequestSlo:
    """What a class is promised."""
    return RequestSlo(
        math.inf if one.itl_ms is None else one.itl_ms / 1000,
        one.percentile,
        math.inf if one.ttft_ms is None else one.ttft_ms / 1000,
        one.autoscale,
    )


def of_sla(sla: Sla) -> RequestSlo:
    """What a request is promised whose class is not known."""
    return RequestSlo(
        math.inf if sla.itl_s is None else sla.itl_s,
        sla.percentile,
        math.inf if sla.ttft_ms is None else sla.ttft_ms / 1000,
    )


def differ(classes: ServiceClasses | None) -> bool:
    """Whether the classes have different times between tokens: then each step has its own."""
    return classes is not None and len({one.itl_ms for one in classes.by_name.values()}) > 1
