"""What all policies of a comparison stand on."""

from dataclasses import dataclass, field

from controller.classes import ServiceClasses
from controller.roles import Transfer
from replicas.profiles.disturbances import Disturbances
from replicas.profiles.profile import StepProfile


@dataclass(frozen=True, slots=True)
class Ground:
    """What all policies of a comparison stand on.

    Args:
        disturbances, disturbance_seed: of the steps.
        classes: what requests are promised that ask for one (``Request.service``).
        swap: over which link KV of preempted requests comes back, where that is sooner than
            computing it again; None: it is computed again.
    """

    profile: StepProfile
    disturbances: Disturbances = field(default_factory=Disturbances)
    disturbance_seed: int = 0
    classes: ServiceClasses | None = None
    swap: Transfer | None = None
