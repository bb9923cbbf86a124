"""Demand, replicas and attainment over a day, a colour per policy."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simulator.fleet.course import Course
from simulator.fleet.outcome import Outcome
from simulator.replay.plots import figure, save

WINDOW_S = 300.0


def plot(course: Course, outcomes: Sequence[tuple[str, Outcome]], path: Path) -> None:
    """Draw a day.

    Raises:
        ConfigError: matplotlib is not installed, or cannot write such a file.
    """
    drawn, (demand, replicas, attained) = figure(3, path)
    seconds = course.day.seconds
    edges = np.arange(0.0, seconds + 60, 60.0, dtype=np.float64)
    came, _ = np.histogram(course.requests.arrival_s, edges)
    demand.plot(edges[:-1] / 3600, came / 60, "grey", linewidth=0.6)
    demand.plot(edges / 3600, course.rates.at(edges), "black", linewidth=0.8)
    for index, (spec, outcome) in enumerate(outcomes):
        colour, hours = f"C{index % 10}", np.arange(len(outcome.ready)) * outcome.tick_s / 3600
        label = f"{spec.partition(':')[0]}: {outcome.replica_hours:.0f} h"
        replicas.plot(hours, outcome.ready, colour, linewidth=0.9, label=label)
        start_s, share = outcome.attainment_over_time(WINDOW_S)
        label = f"{outcome.attainment:.2%}"
        attained.plot(start_s / 3600, share * 100, colour, linewidth=0.9, label=label)
    attained.axhline(99, color="black", linewidth=0.8, linestyle="--")
    for axis, label in (
        (demand, "requests/s\n(a minute, its mean)"),
        (replicas, "replicas ready"),
        (attained, "inside the SLA, %\n(5 minutes)"),
    ):
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
    demand.set_ylim(bottom=0)
    replicas.set_ylim(bottom=0)
    attained.set_ylim(top=100.5)
    attained.set_xlabel("time, h")
    for axis in (replicas, attained):
        axis.legend(fontsize="small", ncols=4)
    save(drawn, path)
