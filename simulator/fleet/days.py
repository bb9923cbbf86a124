"""The days of the bench, for a fleet whose peak is about twenty replicas."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.errors import ConfigError
from controller.validation import unknown_key
from simulator.fleet.traffic import DAY_S, Rates, by_day, read_rates, shipped_rates

PEAK_REPLICAS = 20.0  # by true capacity, at the highest step of a day
MOST_REPLICAS = 200  # of a fleet
CONVERSATION = "azure-2023-conversation"


@dataclass(frozen=True, slots=True)
class Day:
    """A day of demand.

    Args:
        rates: in units of one replica's capacity.
    """

    name: str
    rates: Rates
    workload: str = CONVERSATION

    @property
    def seconds(self) -> float:
        return self.rates.seconds


def real_days(
    rates: Rates, name: str, peak: float = PEAK_REPLICAS, workload: str = CONVERSATION
) -> list[Day]:
    """Each day of these rates with its highest step at ``peak`` replicas' capacity."""
    days = by_day(rates)
    names = [name] if len(days) == 1 else [f"{name}-{k + 1}" for k in range(len(days))]
    return [
        Day(each, day.times(peak / max(day.rate_per_s)), workload)
        for each, day in zip(names, days, strict=True)
        if any(day.rate_per_s)
    ]


def shipped_days() -> list[Day]:
    """Fourteen real days, a step, a flash crowd."""
    found: list[Day] = []
    for name, rates in read_rates(shipped_rates()).items():
        found += real_days(rates, "day" if name.startswith("servegen") else name)
    return [*found, _step(), _flash()]


def _sudden(name: str, base: float, times: float, minutes: int, hours: float) -> Day:
    """A quiet fleet; after an hour ``times`` as much load for some minutes; then quiet again."""
    step_s = 5.0  # the rise is no faster
    steps, begin = int(hours * 3600 / step_s), int(3600 / step_s)
    last = begin + int(minutes * 60 / step_s)
    per = [base * times if begin <= k < last else base for k in range(steps)]
    return Day(name, Rates(step_s, tuple(per), (1.0,) * steps))


def _step() -> Day:
    """Long enough that requests lost during the first start-ups are under 1% of all."""
    return _sudden("step", PEAK_REPLICAS / 4, 4, minutes=240, hours=8)


def _flash() -> Day:
    return _sudden("flash", PEAK_REPLICAS / 10, 10, minutes=3, hours=DAY_S / 3600)


def find_days(specs: Sequence[str], workload: str, peak: float) -> list[Day]:
    """Days by name, or all days of a file (``FILE.json``).

    Raises:
        ConfigError: the name is unknown, or the file is wrong at a line and field.
    """
    shipped = {day.name: day for day in shipped_days()}
    found: list[Day] = []
    for spec in specs:
        if spec in shipped:
            found.append(shipped[spec])
        elif spec == "all":
            found += shipped.values()
        elif spec.endswith(".json") or "/" in spec:
            for name, rates in read_rates(Path(spec)).items():
                found += real_days(rates, name, peak, workload)
        else:
            raise ConfigError([unknown_key("day", spec, [*shipped, "all"])])
    return found
