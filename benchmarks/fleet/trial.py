"""A few minutes of demand that one emulated replica carries, then four, then one again.

What is deployed, what is asked of it, and the same in virtual time: the fleet of
``simulator.fleet.simulate`` on the same requests, with the same autoscaling configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from benchmarks.live.emulated import emulated_application
from controller.config import Sla
from replicas.profile import LinearCost, StepProfile
from replicas.profile_file import load_profile
from serve_app.config import ray_llm_config
from serve_app.scaling.reading import PUBLISHED
from simulator.fleet.outcome import Outcome
from simulator.fleet.simulate import Ground, simulate
from simulator.fleet.traffic import Rates, Requests, draw
from simulator.workloads.catalog import load_workload

MODEL = "elastic"
PROFILE = "paper-fig3"
# Slots bind before the SLA's time between tokens does: what a replica keeps free of it for uneven
# steps, which on shared cores are uneven for everything that runs beside, is not in the fluid.
SLOTS, STEP_TOKENS, KV_TOKENS = 48, 1024, 60_000
MAX_MODEL_LEN = 2048  # of the tiny model
SLA = Sla(itl_ms=60, ttft_ms=2000)  # in the profile's time
WORKLOAD = "lognormal:100,80,0.7"
LEAST, MOST = 1, 4
# Seconds and requests/s: a replica carries some 3.4 of them a second (4 times slower steps).
LOW_PER_S, HIGH_PER_S = 1.2, 10.8
PHASES = ((90.0, LOW_PER_S), (150.0, HIGH_PER_S), (210.0, LOW_PER_S))
STEP_S = 5.0  # of the rates; a rise takes no longer
# The past that is looked at shrinks with the trace, as does Ray Serve's delay: 300 s, three starts
# and 60 s are for days.
SCALING = {"peak_s": 60.0, "peak_starts": 1.0, "start_s": 60.0}
DOWNSCALE_DELAY_S = 12.0
TICK_S = 1.0  # the policy decides once a second
MAX_ONGOING = 4096


@dataclass(frozen=True, slots=True)
class Trial:
    """What both are asked.

    Args:
        time_scale: steps take so many times as long as the profile's, and the SLA with them.
        seed: of arrivals, lengths, and the simulated router.
    """

    time_scale: float = 4.0
    seed: int = 1

    @property
    def seconds(self) -> float:
        """Of arrivals."""
        return sum(seconds for seconds, _ in PHASES)

    @property
    def ends_s(self) -> tuple[float, ...]:
        """When each phase ends."""
        return tuple(sum(seconds for seconds, _ in PHASES[: k + 1]) for k in range(len(PHASES)))

    @property
    def sla(self) -> Sla:
        """As clients have it, in the time that passes for them."""
        itl_ms, ttft_ms = SLA.itl_ms or 0.0, SLA.ttft_ms or 0.0
        return Sla(itl_ms=itl_ms * self.time_scale, ttft_ms=ttft_ms * self.time_scale)

    def requests(self) -> Requests:
        """The same at every call; arrivals are Poisson, an answer leaves room in the context."""
        return _drawn(self.seed)

    def profile(self) -> StepProfile:
        """The emulated accelerator, slowed."""
        known = load_profile(PROFILE)
        assert isinstance(known.cost, LinearCost)
        return replace(
            known,
            kv_tokens=KV_TOKENS,
            max_num_seqs=SLOTS,
            max_num_batched_tokens=STEP_TOKENS,
            cost=slowed(known.cost, self.time_scale),
        )

    def application(self) -> dict[str, Any]:
        """As it is deployed."""
        return emulated_application(
            MODEL,
            engine={
                "max_num_seqs": SLOTS,
                "max_num_batched_tokens": STEP_TOKENS,
                "max_model_len": MAX_MODEL_LEN,
            },
            deployment={
                "max_ongoing_requests": MAX_ONGOING,
                "autoscaling_config": {
                    "min_replicas": LEAST,
                    "max_replicas": MOST,
                    "downscale_delay_s": DOWNSCALE_DELAY_S,
                },
            },
            router={},
            emulate={"profile": PROFILE, "kv_tokens": KV_TOKENS, "time_scale": self.time_scale},
            batching={"policy": "adaptive", "sla": SLA.model_dump()},
            scaling=SCALING,
        )

    def autoscaling(self, start_s: float = SCALING["start_s"]) -> Mapping[str, Any]:
        """Ray Serve's ``autoscaling_config`` of the deployed application, our policy in it.

        Args:
            start_s: the ``scaling`` block's.
        """
        (entry,) = self.application()["args"]["llm_configs"]
        built = ray_llm_config({**entry, "scaling": {**SCALING, "start_s": start_s}})
        autoscaling: Mapping[str, Any] = built["deployment_config"]["autoscaling_config"]
        return autoscaling

    def ground(self, startup_s: float) -> Ground:
        """What the simulation stands on.

        Args:
            startup_s: from the decision until a replica takes requests.
        """
        return Ground(
            self.profile(), self.sla, startup_s, TICK_S, max_ongoing=MAX_ONGOING, seed=self.seed
        )

    def simulated(self, starts: "Starts") -> Outcome:
        """The same requests on a fleet in virtual time, whose first replica stands ready.

        Its time begins with the policy's, ``starts.idle_s`` before the first request can come.
        """
        requests = self.requests()
        return simulate(
            requests._replace(arrival_s=requests.arrival_s + starts.idle_s),
            self.autoscaling(starts.assumed_s),
            self.ground(starts.later_s),
            seconds=starts.idle_s + self.seconds,
            replicas=LEAST,
            reads=PUBLISHED,
        )


@dataclass(frozen=True, slots=True)
class Starts:
    """What the simulation is told of the real run: how long replicas took to start there.

    Args:
        idle_s: how long the policy had been at work before the first request could come.
        first_s: of the first replica, which was asked for before the policy first looked.
        later_s: the mean of those that were asked for afterwards.
    """

    idle_s: float
    first_s: float
    later_s: float

    @property
    def assumed_s(self) -> float:
        """What the policy takes a start to last until it has seen another one.

        It learns the first one only where that took no less than is assumed
        (``serve_app.scaling.starts``).
        """
        return max(self.first_s, SCALING["start_s"])


@cache
def _drawn(seed: int) -> Requests:
    rates = [per_s for seconds, per_s in PHASES for _ in range(round(seconds / STEP_S))]
    drawn = draw(Rates(STEP_S, tuple(rates), (1.0,) * len(rates)), load_workload(WORKLOAD), seed)
    prompts = drawn.input.clip(1, MAX_MODEL_LEN // 2)
    return Requests(drawn.arrival_s, prompts, drawn.output.clip(1, MAX_MODEL_LEN // 2 - 1))


def slowed(cost: LinearCost, factor: float) -> LinearCost:
    """Steps that take so many times as long."""
    return LinearCost(
        cost.fixed_s * factor,
        cost.per_decode_s * factor,
        cost.per_kv_s * factor,
        cost.per_prefill_s * factor,
        cost.per_context_s * factor,
    )
