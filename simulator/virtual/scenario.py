"""The scenario that all policies of a comparison share."""

from dataclasses import dataclass, field

from controller.classes import ServiceClasses
from controller.roles import Transfer
from replicas.profiles.disturbances import Disturbances
from replicas.profiles.profile import StepProfile


@dataclass(frozen=True, slots=True)
class Scenario:
    """The scenario that all policies of a comparison share.

    Args:
        disturbances, disturbance_seed: of the steps.
        classes: SLOs of the classes that requests name (``Request.service``).
        swap: link for KV of preempted requests, if that is faster than computing it again; None:
            it is computed again.
    """

    profile: StepProfile
    disturbances: Disturbances = field(default_factory=Disturbances)
    disturbance_seed: int = 0
    classes: ServiceClasses | None = None
    swap: Transfer | None = None
