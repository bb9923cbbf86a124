"""Phases of a demo, by hand."""

from dataclasses import replace
from typing import Any

from controller.models.histogram import HistogramCounter
from serve_app.demo.client import Answer, Ask
from serve_app.demo.machine import Shares
from serve_app.demo.report import ON, Phase, Sample
from tests.builders import limits, report

QUIET = Shares(seconds=10.0, others_cores=0.1, cores=2, waited_frac=0.01)


def answer(*gaps_s: float, ttft_s: float = 0.5, **keys: Any) -> Answer:
    made = Answer(200, "", len(gaps_s) + 1, ttft_s, gaps_s, ttft_s + sum(gaps_s))
    return replace(made, **keys)


def samples(*caps: int, itl_s: float = 0.02) -> list[Sample]:
    """A replica that had these caps a second apart, and one gap of ``itl_s`` a second."""
    counter, made = HistogramCounter(), []
    for second, cap in enumerate(caps):
        one = report(running=3, itl=counter.snapshot())
        made.append(Sample(float(second), one, limits(max_running=cap, reason="sla")))
        counter.add(itl_s)
    return made


def phase(*answers: Answer, **keys: Any) -> Phase:
    """A pass of 10 s that begins at 2 s."""
    asks = [Ask("a", 4, at_s=float(index)) for index in range(len(answers))]
    made = Phase(ON, 2.0, 12.0, asks, answers, QUIET, {"replica-abcde": samples(64, 32)})
    return replace(made, **keys)
