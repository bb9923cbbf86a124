"""The plan itself: every figure of the report."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from serve_app.planning.cards import GIB
from serve_app.planning.kv import read_bytes
from serve_app.planning.roofline import DEVIATIONS
from simulator.plan.carried import (
    REACHED,
    Divided,
    Drafted,
    divided,
    drafted,
    largest_batch,
)
from simulator.plan.setting import Setting
from simulator.replay.fluid import fluid_limit_per_s

WORTH = 1.1  # smaller gains are within the error of the arithmetic


@dataclass(frozen=True, slots=True)
class Demand:
    """The resources for a demand.

    Args:
        replicas: at the highest rate.
        replica_hours: of a whole day; None if no day was given.
    """

    rate_per_s: float
    replicas: int
    replica_hours: float | None
    day_h: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The result for a ``Setting``.

    Args:
        by_memory: requests of mean length that KV memory holds.
        decodes_in_sla, batch_in_sla: decodes in a step of D: alone, and with their prompts.
        fluid_per_s: the fluid limit; capacity is ``REACHED`` times it.
        offline_per_s: requests/s without an SLA.
        cost: dollars per million output tokens at capacity; None without a price.
    """

    setting: Setting
    by_memory: int
    decodes_in_sla: float
    batch_in_sla: float
    fluid_per_s: float
    offline_per_s: float
    divided: Divided
    drafted: Drafted
    demand: Demand | None
    cost: float | None

    @property
    def capacity_per_s(self) -> float:
        return self.fluid_per_s * REACHED

    @property
    def cap(self) -> int:
        """The batch size to start the engine with."""
        return max(min(self.by_memory, self.setting.profile.max_num_seqs), 1)

    def divide(self) -> bool:
        return self.divided.gain > WORTH

    def speculate(self) -> bool:
        return self.drafted.gain > WORTH

    def to_json(self) -> dict[str, Any]:
        """All figures, with SI units in the names."""
        own, budget, layout = self.setting, self.setting.budget, self.setting.layout
        return {
            "model": own.model,
            "architecture": own.shape.architecture,
            "gpu": own.gpu,
            "tensor_parallel": own.tp,
            "params": own.shape.params,
            "active_params": own.shape.active_params,
            "weights_gib_per_gpu": budget.weights.total / GIB,
            "kv_gib_per_gpu": budget.kv / GIB,
            "kv_bytes_per_token_per_gpu": layout.token_bytes,
            "state_bytes_per_sequence_per_gpu": layout.state_bytes,
            "kv_capacity_tokens": own.capacity_tokens,
            "max_model_len": own.max_model_len,
            "workload": own.workload,
            "lengths": asdict(own.lengths),
            "itl_s": own.itl_s,
            "steps": own.profile.name,
            "steps_measured": own.measured,
            "batch_by_memory": self.by_memory,
            "decodes_in_sla": self.decodes_in_sla,
            "batch_in_sla": self.batch_in_sla,
            "fluid_limit_per_s": self.fluid_per_s,
            "capacity_per_s": self.capacity_per_s,
            "offline_per_s": self.offline_per_s,
            "disaggregated": {
                **asdict(self.divided),
                "gain": self.divided.gain,
                "prefill_per_decode": self.divided.prefill_per_decode,
            },
            "speculation": asdict(self.drafted),
            "demand": None if self.demand is None else asdict(self.demand),
            "cost_per_million_output_tokens": self.cost,
            "roofline_deviations": [
                {"profile": name, "rms": rms, "mean": mean}
                for name, (rms, mean) in DEVIATIONS.items()
            ],
        }


def plan_for(own: Setting) -> Plan:
    """Compute the plan."""
    profile, lengths = own.profile, own.lengths
    fluid = fluid_limit_per_s(profile, lengths, own.itl_s, profile.max_num_seqs)
    capacity = fluid * REACHED
    cost = None
    if own.price_per_h is not None and capacity:
        per_s = own.price_per_h * own.tp / 3600
        cost = per_s / (capacity * lengths.mean_output) * 1e6
    return Plan(
        own,
        int(own.slots),
        largest_batch(profile, lengths, own.itl_s, prompts=False),
        largest_batch(profile, lengths, own.itl_s, prompts=True),
        fluid,
        fluid_limit_per_s(profile, lengths, None, profile.max_num_seqs),
        divided(profile, lengths, own.itl_s),
        drafted(profile, lengths, own.itl_s, own.drafts, own.acceptance, 1 / len(own.shape.layers)),
        _demand(own, capacity),
        cost,
    )


def _demand(own: Setting, capacity_per_s: float) -> Demand | None:
    if own.rate_per_s is None or not capacity_per_s:
        return None
    hours = day_h = None
    if own.day is not None:
        step_s, shares = own.day
        rates = (own.rate_per_s * share for share in shares)
        hours = sum(max(math.ceil(rate / capacity_per_s), 1) for rate in rates) * step_s / 3600
        day_h = len(shares) * step_s / 3600
    return Demand(own.rate_per_s, math.ceil(own.rate_per_s / capacity_per_s), hours, day_h)


def kv_read_bytes(own: Setting) -> float:
    """Bytes that a step reads of one mean request's KV memory, on one card."""
    return read_bytes(own.shape, own.lengths.mean_held, own.tp, own.layout.kv_bytes)
