"""Capacity of one replica inside the SLA: aggregated, disaggregated, with drafts. Fluid arithmetic.

All are ``fluid_limit_per_s`` with different engines.
"""

from dataclasses import dataclass, replace

from replicas.profiles.profile import StepCost, StepProfile
from simulator.replay.fluid import fluid_limit_per_s, highest
from simulator.workloads.requests import LengthStats

# Share of the fluid limit that `adaptive` reaches with vLLM's own scheduler: 0.97 over all contests
# of docs/results/g3.md.
REACHED = 0.97


@dataclass(frozen=True, slots=True)
class DraftedCost:
    """Steps that verify ``drafts`` tokens after each one and generate ``tokens`` of them.

    Like all costs it is called with generated tokens: each is 1 / ``tokens`` of a sequence in the
    batch, with all its drafts and one read of its KV memory.

    Args:
        draft_s: time for drafting in a step.
    """

    cost: StepCost
    drafts: int
    tokens: float
    draft_s: float

    def step_s(self, decodes: float, kv: float, prefill: float, context: float) -> float:
        sequences = decodes / self.tokens
        verified = sequences * (1 + self.drafts)
        step_s = self.cost.step_s(verified, kv / self.tokens, prefill, context)
        return step_s + self.draft_s


@dataclass(frozen=True, slots=True)
class Divided:
    """Prefill and decode on separate engines.

    Args:
        prefill_per_s, decode_per_s: requests/s of one engine of each kind.
        aggregated_per_s: requests/s of one engine that does both.
    """

    prefill_per_s: float
    decode_per_s: float
    aggregated_per_s: float

    @property
    def per_engine_s(self) -> float:
        """Requests/s per engine, with both kinds balanced."""
        if not self.prefill_per_s or not self.decode_per_s:
            return 0.0
        return 1 / (1 / self.prefill_per_s + 1 / self.decode_per_s)

    @property
    def gain(self) -> float:
        """Gain over engines that do both; 0 if these carry nothing."""
        return self.per_engine_s / self.aggregated_per_s if self.aggregated_per_s else 0.0

    @property
    def prefill_per_decode(self) -> float:
        """Prefill engines for each decode engine."""
        return self.decode_per_s / self.prefill_per_s if self.prefill_per_s else 0.0


@dataclass(frozen=True, slots=True)
class Drafted:
    """Speculation with ``drafts`` drafts a step.

    Args:
        tokens: generated in a step by each sequence.
        gain: capacity over that without drafts.
    """

    drafts: int
    tokens: float
    gain: float


def divided(profile: StepProfile, lengths: LengthStats, itl_s: float) -> Divided:
    """Decode steps take D at most; prefill engines compute whole chunks of the token budget.

    The transfer of KV memory between them is not counted.
    """
    decodes = replace(lengths, mean_input=0.0, mean_context=0.0)
    chunk = profile.max_num_batched_tokens
    chunk_s = profile.step_s(0, 0, chunk, chunk * lengths.mean_context)
    return Divided(
        chunk / (chunk_s * lengths.mean_input),
        fluid_limit_per_s(profile, decodes, itl_s, profile.max_num_seqs),
        fluid_limit_per_s(profile, lengths, itl_s, profile.max_num_seqs),
    )


def drafted(
    profile: StepProfile,
    lengths: LengthStats,
    itl_s: float,
    drafts: int,
    acceptance: float,
    draft_frac: float,
) -> Drafted:
    """Capacity with drafts over that without; the SLA holds for whole steps.

    Args:
        draft_frac: time to draft one token for the batch, share of a step of one decode.
    """
    tokens = sum(acceptance**k for k in range(drafts + 1))
    one_s = profile.step_s(1, lengths.mean_held, 0, 0)
    cost = DraftedCost(profile.cost, drafts, tokens, drafts * draft_frac * one_s)
    engine = replace(
        profile,
        cost=cost,
        kv_tokens=int(profile.kv_tokens * tokens),
        max_num_seqs=int(profile.max_num_seqs * tokens),
    )
    without = fluid_limit_per_s(profile, lengths, itl_s, profile.max_num_seqs)
    if not without:
        return Drafted(drafts, tokens, 0.0)
    gain = fluid_limit_per_s(engine, lengths, itl_s, engine.max_num_seqs) / without
    return Drafted(drafts, tokens, gain)


def largest_batch(profile: StepProfile, lengths: LengthStats, itl_s: float, prompts: bool) -> float:
    """Decodes in a step of at most D, regardless of memory.

    Args:
        prompts: whether the step has the prefill of the requests that replace ended ones.
    """
    prefill = lengths.mean_input / max(lengths.mean_output - 1, 1) if prompts else 0.0
    held, context = lengths.mean_held, lengths.mean_context

    def step_s(batch: float) -> float:
        come = prefill * batch
        return profile.step_s(batch, batch * held, come, come * context)

    if step_s(1.0) > itl_s:
        return 0.0
    return highest(lambda batch: step_s(batch) <= itl_s, 0.0, 1e6, 60)
