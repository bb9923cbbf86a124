"""The rows of ``make disturbed``: loads x disturbances, as data."""

from dataclasses import dataclass

from replicas.profiles.disturbances import Disturbances, EncoderWork, Pauses, SlowPhases
from replicas.profiles.profile_file import load_profile, named_profiles
from simulator.workloads.catalog import load_workload
from simulator.workloads.lengths import Exponential, SomeLong
from simulator.workloads.requests import length_stats
from simulator.workloads.traffic import Drawn, Workload, draw_traffic

# Of engines as small as those that are recorded on CPUs: 64 tokens in and 100 out, but one prompt
# in ten has 256 to 512.
STREAMS = "64-100-some-long"
OWN_WORKLOADS = {
    STREAMS: Workload(
        STREAMS, Drawn(SomeLong(Exponential(64, 256), 0.1, 256, 512), Exponential(100))
    )
}
SAMPLED = 4000  # requests, for a workload's means
SAMPLED_SEED = 0
RECORDED_DECODES, RECORDED_STEPS = 8, 3  # D of a recorded engine: so many steps of so many decodes


@dataclass(frozen=True, slots=True)
class Load:
    """Poisson arrivals on a profile.

    Args:
        itl_ms: D.
        rate_per_s: requests/s; None: ``of_limit``.
        of_limit: share of the fluid limit, of undisturbed steps.
    """

    name: str
    profile: str
    workload: str
    itl_ms: float
    rate_per_s: float | None = None
    of_limit: float | None = None


@dataclass(frozen=True, slots=True)
class Disturbed:
    """What is done to the steps, by name."""

    name: str
    what: str
    disturbances: Disturbances


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison."""

    load: Load
    disturbed: Disturbed

    @property
    def id(self) -> str:
        return f"{self.load.name} {self.disturbed.name}"


PAPER, H100 = "paper-fig3", "h100-Llama-2-70b-hf-tp4"
AZURE = "azure-2023-conversation"
PAPER_MS, H100_MS = 50.0, 43.3  # as in benchmarks.contests.catalog
LOADS = (
    Load("257-62@4", PAPER, "fixed:257,62", PAPER_MS, rate_per_s=4.0),
    Load("257-62@7", PAPER, "fixed:257,62", PAPER_MS, rate_per_s=7.0),
    Load("azure@0.45", PAPER, AZURE, PAPER_MS, of_limit=0.45),
    Load("azure@0.75", PAPER, AZURE, PAPER_MS, of_limit=0.75),
    Load("h100@0.45", H100, "exponential:257,62", H100_MS, of_limit=0.45),
    Load("h100@0.75", H100, "exponential:257,62", H100_MS, of_limit=0.75),
)


def _pauses(share: float, mean_s: float) -> Disturbances:
    return Disturbances(pauses=(Pauses(share, mean_s),))


def _slow(share: float, factor: float, mean_s: float) -> Disturbances:
    return Disturbances(slow=(SlowPhases(share, factor, mean_s),))


NOTHING = Disturbed("nothing", "undisturbed", Disturbances())
DISTURBED = (
    NOTHING,
    *(
        Disturbed(f"cv{cv}", f"noise of CV {cv}%", Disturbances(noise_cv=cv / 100))
        for cv in (10, 20, 30, 60)
    ),
    Disturbed("pauses-5x30", "pauses of 30 ms in 5% of the steps", _pauses(0.05, 0.030)),
    Disturbed("pauses-5x100", "pauses of 100 ms in 5% of the steps", _pauses(0.05, 0.100)),
    Disturbed("pauses-20x15", "pauses of 15 ms in 20% of the steps", _pauses(0.20, 0.015)),
    Disturbed("half-speed", "half speed for 17% of the time, 2 s on end", _slow(0.17, 2.0, 2.0)),
    Disturbed("slow-40s", "1.7 x slower for a fifth of the time, 40 s on end", _slow(0.2, 1.7, 40)),
    Disturbed(
        "encoder",
        "an encoder's 80 ms for 30% of the requests",
        Disturbances(encoder=EncoderWork(0.3, 0.080)),
    ),
    Disturbed("mixed-3", "steps with prompt tokens 3 ms longer", Disturbances(mixed_s=0.003)),
    Disturbed("mixed-6", "steps with prompt tokens 6 ms longer", Disturbances(mixed_s=0.006)),
    Disturbed(
        "cv10-pauses-5x40",
        "noise of CV 10%, pauses of 40 ms in 5% of the steps",
        Disturbances(noise_cv=0.1, pauses=(Pauses(0.05, 0.040),)),
    ),
)


def all_rows() -> tuple[Row, ...]:
    """Every load under every disturbance, and the recorded profiles, whose steps bring their own.

    ``configs/profiles`` is searched for recordings; D is theirs to two digits.
    """
    recorded = [name for name, file in named_profiles().items() if name in file.recordings]
    return (
        *(Row(load, disturbed) for load in LOADS for disturbed in DISTURBED),
        *(Row(load, NOTHING) for name in recorded for load in _recorded_loads(name)),
    )


def _recorded_loads(name: str) -> list[Load]:
    profile, n = load_profile(name), RECORDED_DECODES
    means = length_stats(draw_traffic(workload_of(STREAMS), SAMPLED, 1.0, SAMPLED_SEED).requests)
    step_ms = profile.step_s(n, n * means.mean_held, 0, 0) * 1000
    itl_ms = float(f"{RECORDED_STEPS * step_ms:.2g}")
    return [Load(f"{name}@{x:g}", name, STREAMS, itl_ms, of_limit=x) for x in (0.45, 0.75)]


def workload_of(name: str) -> Workload:
    """A workload of this bench, or else as on the command line of ``brimful replay``."""
    return OWN_WORKLOADS.get(name) or load_workload(name)
