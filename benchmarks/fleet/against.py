"""The fluid replica beside the real vLLM scheduler with the Governor, on the same requests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.report.document import markdown_table
from controller.config import Sla
from simulator.fleet import fluid
from simulator.fleet.outcome import inside_sla
from simulator.fleet.simulate import AFTER_S, Ground
from simulator.fleet.state import make_fleet, occupy
from simulator.fleet.traffic import Requests
from simulator.replay.engine import Ground as ReplayGround
from simulator.replay.engine import replay
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.lengths import Floats
from simulator.workloads.requests import Request
from simulator.workloads.traffic import Workload, draw_traffic


@dataclass(frozen=True, slots=True)
class Seen:
    """What one replica made of some requests.

    Args:
        finished_per_s: until the last request had come.
        inside: share of requests inside the SLA, as a fleet's is counted (``Outcome.inside``).
        ttft_s, itl_s: mean, p99 of the time to first token; mean time between tokens.
        present: requests waiting and running on average while requests came.
    """

    finished_per_s: float
    inside: float
    ttft_s: float
    ttft_p99_s: float
    itl_s: float
    present: float


def both(
    workload: Workload, rate_per_s: float, n: int, ground: Ground, seed: int
) -> tuple[Seen, Seen]:
    """The real scheduler's, then the fluid's."""
    drawn = draw_traffic(workload, n, None, seed).at(rate_per_s)
    return real(drawn, ground), fluids(drawn, ground)


def real(drawn: Sequence[Request], ground: Ground) -> Seen:
    """vLLM's scheduler with `adaptive`, in virtual time."""
    plan = parse_policy("adaptive", ground.sla, engine_of(ground.profile))
    trace = replay(drawn, plan, ReplayGround(ground.profile))
    first = np.array([o.first_token_s or np.nan for o in trace.outcomes])
    end = np.array([o.finished_s or np.nan for o in trace.outcomes])
    return _seen(drawn, first, end, ground.sla)


def fluids(drawn: Sequence[Request], ground: Ground) -> Seen:
    """The same through one fluid replica."""
    requests = Requests(
        np.array([r.arrival_s for r in drawn]),
        np.array([r.input_tokens for r in drawn]),
        np.array([r.output_tokens for r in drawn]),
    )
    engine = ground.engine(requests)
    fleet = make_fleet(requests, 1, engine, ground.seed)
    occupy(fleet, 0, 0.0)
    fluid.run_until(fleet, engine, drawn[-1].arrival_s + 100 * AFTER_S)
    return _seen(drawn, fleet.first_s, fleet.end_s, ground.sla)


def _seen(drawn: Sequence[Request], first: Floats, end: Floats, sla: Sla) -> Seen:
    arrival = np.array([r.arrival_s for r in drawn])
    outputs = np.array([r.output_tokens for r in drawn])
    last_s = float(arrival[-1])
    ttft = first - arrival
    several = outputs > 1
    itl = (end - first)[several] / (outputs[several] - 1)
    stays = np.minimum(end, last_s) - arrival
    inside = float(inside_sla(arrival, first, end, outputs, sla).mean())
    return Seen(
        float((end <= last_s).sum() / last_s),
        inside,
        float(np.nanmean(ttft)),
        float(np.nanpercentile(ttft, 99)),
        float(np.nanmean(itl)),
        float(np.nansum(stays) / last_s),
    )


RATES_PER_S = (1.5, 2.5, 3.0, 3.5, 4.2)  # of one replica: light, to beyond what it carries
REQUESTS = 1000


def table(ground: Ground, workload: Workload, seed: int) -> str:
    """Both at each rate, as Markdown."""
    lines = []
    for rate_per_s in RATES_PER_S:
        real_one, fluid_one = both(workload, rate_per_s, REQUESTS, ground, seed)
        pairs = zip(
            (f(real_one) for f in _COLUMNS.values()),
            (f(fluid_one) for f in _COLUMNS.values()),
            strict=True,
        )
        lines.append((f"{rate_per_s:g}", *(f"{a} / {b}" for a, b in pairs)))
    return markdown_table(("requests/s", *_COLUMNS), lines)


_COLUMNS: dict[str, Callable[[Seen], str]] = {
    "finished/s": lambda s: f"{s.finished_per_s:.2f}",
    "inside the SLA": lambda s: f"{s.inside:.1%}",
    "TTFT mean, s": lambda s: f"{s.ttft_s:.2f}",
    "TTFT p99, s": lambda s: f"{s.ttft_p99_s:.2f}",
    "between tokens, ms": lambda s: f"{s.itl_s * 1000:.1f}",
    "waiting and running": lambda s: f"{s.present:.1f}",
}
