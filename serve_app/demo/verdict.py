"""What came of the demo: figures with targets, and which of them were reached."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serve_app.demo.report import PERCENTILE, Phase, at, caps_moved

AT_LEAST = {"inside_on": PERCENTILE / 100, "tokens_on_over_off": 0.9}
AT_MOST = {
    "itl_p99_on_over_off": 1 / 3,
    "ttft_p50_on_over_tuned": 1.2,
    "ttft_p99_on_over_tuned": 1.2,
}


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence, and whether it held.

    Args:
        target: a figure to reach, which another machine may miss; it does not fail the demo.
    """

    text: str
    held: bool
    target: bool = False

    def line(self) -> str:
        """For the terminal."""
        words = ("missed", "reached") if self.target else ("DID NOT HOLD", "held")
        return f"{words[self.held]}: {self.text}"


def claims(off: Phase, on: Phase, tuned: Phase, sla_ms: float, *, fair: bool) -> list[Claim]:
    """What the demo stands for; of times only where they could be compared."""
    phases = (off, on, tuned)
    asked, whole = (sum(map(len, parts)) for parts in zip(*map(_counted, phases), strict=True))
    broken = next((a for p in phases for a in p.answers if not a.whole), None)
    why = "" if broken is None else f" ({broken.status}: {broken.error or broken.text:.200})"
    found = [
        Claim(f"{whole} of {asked} answers whole{why}", whole == asked),
        Claim("the cap of each replica moved while control was on", caps_moved(on)),
    ]
    measured = all(len(phase.gaps_s) and len(phase.ttft_s) for phase in phases)
    value = {row["id"]: row["value"] for row in rows(off, on, tuned, sla_ms)}
    for bounds, word in ((AT_LEAST, "at least"), (AT_MOST, "at most")):
        for key, bound in bounds.items() if fair and measured else ():
            held = value[key] >= bound if bounds is AT_LEAST else value[key] <= bound
            what = key.replace("_", " ")
            found.append(Claim(f"{what} {value[key]:.3g}, {word} {bound:.2g}", held, target=True))
    return found


def _counted(phase: Phase) -> tuple[Any, Any]:
    return phase.answers, phase.whole


def rows(off: Phase, on: Phase, tuned: Phase, sla_ms: float) -> list[dict[str, Any]]:
    """The figures as ``--json`` prints them: of whole answers, None where there were none."""
    of_on = _figures(on, sla_ms)
    values: dict[str, tuple[float | None, str]] = {
        "sla": (sla_ms, "ms"),
        "inside_on": (of_on["inside"], "share"),
    }
    values["stalls_on"] = on.stalls(sla_ms), "gaps"
    for other, phase in (("off", off), ("tuned", tuned)):
        for key, value in _figures(phase, sla_ms).items():
            ratio = of_on[key] / value if value else None
            values[f"{key}_on_over_{other}"] = ratio, "ratio"
    targets = AT_LEAST | AT_MOST
    return [
        {"id": key, "value": value, "unit": unit, "target": targets.get(key)}
        for key, (value, unit) in values.items()
    ]


def _figures(phase: Phase, sla_ms: float) -> Mapping[str, float]:
    return {
        "inside": phase.inside(sla_ms),
        "itl_p99": at(phase.gaps_s, 99) or 0.0,
        "ttft_p50": at(phase.ttft_s, 50) or 0.0,
        "ttft_p99": at(phase.ttft_s, 99) or 0.0,
        "tokens": phase.tokens_per_s,
        "longest_stall": phase.longest_s,
    }
