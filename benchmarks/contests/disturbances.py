"""Disturbances of an engine's steps, by name."""

from dataclasses import dataclass

from replicas.profiles.disturbances import Disturbances, EncoderWork, Pauses, SlowPhases
from simulator.workloads.catalog import load_workload
from simulator.workloads.lengths import Exponential, SomeLong
from simulator.workloads.traffic import Drawn, Workload

# For engines as small as those recorded on CPUs: 64 tokens in and 100 out, but one prompt in ten
# has 256 to 512.
STREAMS = "64-100-some-long"
OWN_WORKLOADS = {
    STREAMS: Workload(
        STREAMS, Drawn(SomeLong(Exponential(64, 256), 0.1, 256, 512), Exponential(100))
    )
}


@dataclass(frozen=True, slots=True)
class Disturbed:
    """Disturbances with a name."""

    name: str
    disturbances: Disturbances


def _pauses(share: float, mean_s: float) -> Disturbances:
    return Disturbances(pauses=(Pauses(share, mean_s),))


def _slow(share: float, factor: float, mean_s: float) -> Disturbances:
    return Disturbances(slow=(SlowPhases(share, factor, mean_s),))


NOTHING = Disturbed("nothing", Disturbances())
DISTURBED = (
    NOTHING,
    *(Disturbed(f"cv{cv}", Disturbances(noise_cv=cv / 100)) for cv in (10, 20, 30, 60)),
    Disturbed("pauses-5x30", _pauses(0.05, 0.030)),  # of 30 ms in 5% of the steps
    Disturbed("pauses-5x100", _pauses(0.05, 0.100)),
    Disturbed("pauses-20x15", _pauses(0.20, 0.015)),
    Disturbed("half-speed", _slow(0.17, 2.0, 2.0)),  # for 17% of the time, 2 s at a time
    Disturbed("slow-40s", _slow(0.2, 1.7, 40)),
    Disturbed("encoder", Disturbances(encoder=EncoderWork(0.3, 0.080))),  # 80 ms, 30% of requests
    Disturbed("mixed-3", Disturbances(mixed_s=0.003)),  # steps with prompt tokens take 3 ms more
    Disturbed("mixed-6", Disturbances(mixed_s=0.006)),
    Disturbed("cv10-pauses-5x40", Disturbances(noise_cv=0.1, pauses=(Pauses(0.05, 0.040),))),
)


def workload_of(name: str) -> Workload:
    """A workload of this bench, or one that ``brimful replay --workload`` takes."""
    return OWN_WORKLOADS.get(name) or load_workload(name)
