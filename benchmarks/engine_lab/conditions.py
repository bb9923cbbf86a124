"""What disturbs an engine in the lab."""

from dataclasses import dataclass

from benchmarks.engine_lab.hog import Hog

SKIP_S = 30.0  # of a run's arrivals: they do not count
PHASE_S = 60.0
BY_MINUTE = "-by-minute"  # of a condition that changes within a run


@dataclass(frozen=True, slots=True)
class Condition:
    """What an engine runs beside.

    Args:
        seconds: of a run's arrivals.
    """

    name: str
    what: str
    hog: Hog | None = None
    seconds: float = 120.0


CONDITIONS = (
    Condition("alone", "nothing else wants the core"),
    Condition("hog-8", "8 ms of 38 taken", Hog(0.008, 0.030)),
    Condition("hog-30", "30 ms of 150 taken", Hog(0.030, 0.120)),
    # The hog's first half phase does not count: then a minute is without it and one with it.
    Condition(
        f"hog-8{BY_MINUTE}",
        "8 ms of 38 taken, off and on by the minute",
        Hog(0.008, 0.030, PHASE_S),
        SKIP_S + 2 * PHASE_S,
    ),
)
