"""The outcome of a day, and the definition of every figure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.config import Sla
from simulator.fleet.traffic import Requests
from simulator.workloads.lengths import Floats

SHARE = 0.99  # of requests inside the SLA, for a policy's hours to count


def inside_sla(
    arrival_s: Floats, first_s: Floats, end_s: Floats, output: NDArray[np.int64], sla: Sla
) -> NDArray[np.bool_]:
    """Whether each request met the SLA.

    It is served to its end, its first token came within ``ttft_ms``, and its mean ITL is within
    ``itl_ms``.
    """
    met = ~np.isnan(end_s)
    if sla.ttft_ms is not None:
        met &= first_s - arrival_s <= sla.ttft_ms / 1000
    if sla.itl_s is not None:
        met &= (end_s - first_s) / np.maximum(output - 1, 1) <= sla.itl_s * (1 + 1e-6)
    return met


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """One policy's day.

    Args:
        first_s, end_s: of each request; NaN: never.
        targets, ready: replicas wanted, and replicas that took requests, after each tick.
        replica_s: of all replicas, from the decision to start until they were empty.
        overflow_s: part of ``replica_s`` in the second group.
        lost: requests that were lost with their replica in the middle of an answer.
    """

    requests: Requests
    first_s: Floats
    end_s: Floats
    targets: NDArray[np.int64]
    ready: NDArray[np.int64]
    replica_s: float
    tick_s: float
    sla: Sla
    overflow_s: float = 0.0
    lost: int = 0

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whether each request met the SLA (``inside_sla``)."""
        requests = self.requests
        return inside_sla(requests.arrival_s, self.first_s, self.end_s, requests.output, self.sla)

    @property
    def attainment(self) -> float:
        """Share of all requests that met the SLA."""
        return float(self.inside.mean())

    @property
    def replica_hours(self) -> float:
        return self.replica_s / 3600

    def cost_hours(self, price: float) -> float:
        """Hours of the first group that cost the same, with this price of the second."""
        return (self.replica_s - (1 - price) * self.overflow_s) / 3600

    @property
    def reversals_per_h(self) -> float:
        """How often the wanted number changed direction, per hour."""
        moves = np.sign(np.diff(self.targets))
        moves = moves[moves != 0]
        turns = int((moves[1:] != moves[:-1]).sum())
        return turns / (len(self.targets) * self.tick_s / 3600)
