"""Request-level static batching, as servers did before Orca: a batch begins and ends together.

Prompts are padded to the longest of the batch and computed in one step; then every slot decodes
until the longest output is done, the slots of those that finished with padding in them. vLLM
cannot do this, so no scheduler runs here: arithmetic on the same profile, without noise.
"""

from collections.abc import Sequence
from itertools import pairwise

from replicas.profiles.profile import StepProfile
from simulator.virtual.plan import Plan
from simulator.virtual.trace import Gap, Outcome, Step, Trace, make_gaps
from simulator.workloads.requests import Request


def replay_request_level(
    requests: Sequence[Request], plan: Plan, profile: StepProfile, *, drain: bool = True
) -> Trace:
    """Serve these requests in batches of at most ``max_num_seqs``, fewer where KV is short.

    Args:
        drain: serve all; False: begin no batch after the last request has come.
    """
    now_s, next_one = 0.0, 0
    outcomes = [Outcome(r, refused=_padded([r]) > profile.kv_tokens) for r in requests]
    queue = [k for k, outcome in enumerate(outcomes) if not outcome.refused]
    steps: list[Step] = []
    gaps: list[Gap] = []
    while next_one < len(queue) and (drain or now_s <= requests[-1].arrival_s):
        now_s = max(now_s, requests[queue[next_one]].arrival_s)
        batch: list[int] = []
        for k in queue[next_one : next_one + plan.engine.max_num_seqs]:
            together = [requests[j] for j in (*batch, k)]
            if requests[k].arrival_s > now_s or _padded(together) > profile.kv_tokens:
                break
            batch.append(k)
        next_one += len(batch)
        waiting = sum(requests[k].arrival_s <= now_s for k in queue[next_one:])
        ends_s = _serve([requests[k] for k in batch], waiting, now_s, plan, profile, steps)
        for k in batch:
            own = ends_s[: requests[k].output_tokens]
            outcomes[k] = Outcome(requests[k], False, len(own), now_s, own[0], own[-1])
            gaps += ((b - a, b, k) for a, b in pairwise(own))
        now_s = ends_s[-1]
    gaps.sort(key=lambda gap: gap[1])
    return Trace(tuple(outcomes), tuple(steps), make_gaps(gaps), profile.kv_tokens, now_s)


def _serve(
    batch: list[Request],
    waiting: int,
    now_s: float,
    plan: Plan,
    profile: StepProfile,
    steps: list[Step],
) -> list[float]:
    """Run one batch to its end; when each of its steps, so each of its tokens, was done."""
    size, prompt = len(batch), max(r.input_tokens for r in batch)
    kv_used, ends_s = _padded(batch), []
    for step in range(max(r.output_tokens for r in batch)):
        features = (
            (size, size * (prompt + step - 1), 0, 0.0)
            if step
            else (0, 0, size * prompt, size * prompt**2 / 2)
        )
        duration_s = profile.step_s(*features)
        now_s += duration_s
        ends_s.append(now_s)
        decodes, _, prefill, _ = features
        cap, budget = plan.engine.max_num_seqs, plan.engine.max_num_batched_tokens
        steps.append(Step(now_s, duration_s, decodes, prefill, size, waiting, kv_used, cap, budget))
    return ends_s


def _padded(batch: list[Request]) -> int:
    """KV tokens reserved for a batch: every slot has the longest prompt and the longest output."""
    longest = max(r.input_tokens for r in batch) + max(r.output_tokens for r in batch)
    return len(batch) * longest
