"""The SLO of one request, and how the engine gets it."""

import math
from dataclasses import dataclass, field

from controller.classes import ServiceClass, ServiceClasses
from controller.config import Sla

# Key of a ``RequestSlo`` (``records.to_wire``) in vLLM's ``SamplingParams.extra_args``, which go to
# the engine with the request. If classes are configured, the replica's admission overwrites it: a
# client may have set it.
KEY = "brimful"


@dataclass(frozen=True, slots=True)
class RequestSlo:
    """The SLO of one request.

    Args:
        itl_s: ITL, seconds; infinite: none is promised.
        percentile: percentage of its gaps between tokens that is to be within ``itl_s``.
        ttft_s: TTFT, seconds; infinite: none is promised.
        autoscale: whether it counts for autoscaling; not part of the SLO, but sent with it.
    """

    itl_s: float = math.inf
    percentile: float = 99.0
    ttft_s: float = math.inf
    autoscale: bool = field(default=True, compare=False)


def of_class(one: ServiceClass) -> RequestSlo:
    """The SLO of a class."""
    return RequestSlo(
        math.inf if one.itl_ms is None else one.itl_ms / 1000,
        one.percentile,
        math.inf if one.ttft_ms is None else one.ttft_ms / 1000,
        one.autoscale,
    )


def of_sla(sla: Sla) -> RequestSlo:
    """The SLO of a request whose class is unknown."""
    return RequestSlo(
        math.inf if sla.itl_s is None else sla.itl_s,
        sla.percentile,
        math.inf if sla.ttft_ms is None else sla.ttft_ms / 1000,
    )


def differ(classes: ServiceClasses | None) -> bool:
    """Whether the classes have different ITLs: then each step has its own."""
    return classes is not None and len({one.itl_ms for one in classes.by_name.values()}) > 1
