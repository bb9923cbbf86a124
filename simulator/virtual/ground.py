"""What all policies of a comparison stand on."""

from dataclasses import dataclass, field

from controller.classes import ServiceClasses
from controller.roles import Transfer
from replicas.profiles.disturbances import Disturbances
from replicas.profiles.profile import StepProfile
from simulator.workloads.requests import Request


@dataclass(frozen=True, slots=True)
class Ground:
    """What all policies of a comparison stand on.

    Args:
        disturbances, disturbance_seed: of the steps.
        shared_prefix_tokens: how many tokens all prompts begin with together.
        warm_up: served to their end before the clock begins at 0; of no account but for what the
            policy learned of them. The ways of the bench alone, which learn nothing, leave it out.
        charge_own_code: what this project's scheduler adds to vLLM's takes its own CPU time, as
            measured on this machine while the replay runs, so no two replays are the same.
            Scheduling a step ahead hides it behind the step that runs, as far as it is shorter.
            ``static``, which stands for vLLM by itself, is not charged.
        grammar_s: every request waits so long for its grammar; None: none has one.
        classes: what requests are promised that ask for one (``Request.service``).
        swap: over which link KV of preempted requests comes back, where that is sooner than
            computing it again; None: it is computed again.
    """

    profile: StepProfile
    disturbances: Disturbances = field(default_factory=Disturbances)
    disturbance_seed: int = 0
    shared_prefix_tokens: int = 0
    warm_up: tuple[Request, ...] = ()
    charge_own_code: bool = False
    grammar_s: float | None = None
    classes: ServiceClasses | None = None
    swap: Transfer | None = None
