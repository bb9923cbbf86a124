"""``adaptive`` on vLLM's real scheduler, in virtual time."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from controller.config import Sla
from replicas.profiles.disturbances import Disturbances
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.virtual.plan import EngineOptions, Speculation, parse_policy
from simulator.virtual.trace import Trace
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request
from simulator.workloads.traffic import draw_requests

FIG3 = load_profile("paper-fig3")
SLA = Sla(itl_ms=50)
ENGINE = EngineOptions(max_num_seqs=256, max_num_batched_tokens=2048)


def served(
    requests: Sequence[Request],
    spec: str,
    *,
    sla: Sla = SLA,
    kv_tokens: int = 60_000,
    noise_cv: float = 0.0,
) -> Trace:
    """These requests under a policy on the paper's line."""
    ground = Ground(FIG3.with_kv_tokens(kv_tokens), Disturbances(noise_cv))
    return replay(requests, parse_policy(spec, sla, ENGINE), ground)


def stream(n: int, rate: float, seed: int = 0) -> tuple[Request, ...]:
    """Prompts of 257 tokens, answers of 62 on average, Poisson."""
    return draw_requests(load_workload("exponential:257,62"), n, rate, None, seed)


def test_the_time_between_tokens_is_inside_the_sla_where_the_default_is_far_out() -> None:
    requests = stream(500, 8.0)
    ours, default = (served(requests, s, noise_cv=0.03) for s in ("adaptive", "static"))
    late = ours.gaps.end_s > 5.0  # the first seconds teach it what a step takes
    assert np.percentile(ours.gaps.length_s[late], 99) <= 0.0501
    assert np.percentile(default.gaps.length_s, 99) > 0.1
    assert ours.end_s <= default.end_s * 1.05


def test_an_sla_that_no_step_meets_does_not_stop_the_engine() -> None:
    requests = stream(200, 4.0)
    ours, default = (served(requests, s, sla=Sla(itl_ms=20)) for s in ("adaptive", "static"))
    assert ours.end_s <= default.end_s * 1.05
    assert np.percentile(ours.gaps.length_s, 99) <= np.percentile(default.gaps.length_s, 99)


def test_memory_that_is_short_is_filled_and_overrun_no_more_than_is_set_or_pays() -> None:
    requests = draw_requests(load_workload("exponential:191,382"), 300, float("inf"), None, 1)
    specs = ("adaptive:overflow_probability=0.02", "adaptive", "static")
    bound, ours, default = (served(requests, s, sla=Sla(), kv_tokens=30_000) for s in specs)
    preempted = [sum(o.preemptions for o in trace.outcomes) for trace in (bound, ours, default)]
    assert preempted[0] < 0.2 * preempted[2]
    # By what a preemption costs alone more are preempted. Both ways all are done earlier.
    assert preempted[0] < preempted[1] < preempted[2]
    assert max(bound.end_s, ours.end_s) < default.end_s


def test_advice_that_is_not_enforced_changes_nothing() -> None:
    requests = stream(150, 9.0)
    advised = served(
        requests, "adaptive:enforce=false,step_aside=true", sla=Sla(itl_ms=50, ttft_ms=900)
    )
    plain = served(requests, "static")
    assert advised.outcomes == plain.outcomes
    assert [s.end_s for s in advised.steps] == [s.end_s for s in plain.steps]


def test_in_overload_those_that_can_be_in_time_are() -> None:
    requests = stream(600, 20.0)  # twice what the SLA leaves room for
    sla = Sla(itl_ms=50, ttft_ms=2000)

    def in_time(trace: Trace) -> int:
        firsts = ((o.first_token_s, o.request.arrival_s) for o in trace.outcomes)
        return sum(first is not None and first - came <= 2.0 for first, came in firsts)

    aside = served(requests, "adaptive", sla=sla)
    in_turn = served(requests, "adaptive:step_aside=false", sla=sla)
    assert in_time(aside) > 2 * in_time(in_turn)
    assert all(o.finished_s is not None for o in aside.outcomes)  # and nobody is left out


def test_it_runs_with_drafts() -> None:
    requests = stream(120, 12.0)
    drafts = Speculation(tokens=4, acceptance=0.7)
    plan = replace(parse_policy("adaptive", SLA, ENGINE), speculation=drafts)
    trace = replay(requests, plan, Ground(FIG3.with_kv_tokens(20_000)))
    assert [o.tokens for o in trace.outcomes] == [r.output_tokens for r in requests]
