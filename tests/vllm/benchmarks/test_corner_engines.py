"""Structured output and hybrid models in the replay: all are served, and nothing passes by."""

import pytest

from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import Ground
from simulator.virtual.plan import EngineOptions, Plan, parse_policy
from simulator.workloads.requests import Request
from tests.vllm.corner_engines import hybrid, structured

OPTIONS = EngineOptions(max_num_seqs=256, max_num_batched_tokens=2048)


def plan(spec: str, itl_ms: float | None) -> Plan:
    return parse_policy(spec, Sla(itl_ms=itl_ms), OPTIONS)


@pytest.mark.parametrize("spec", ["static", "adaptive"])
def test_requests_that_wait_for_a_grammar_start_when_it_is_there(spec: str) -> None:
    requests = [Request(index / 10, 100, 20, max_tokens=100) for index in range(40)]
    trace = structured(requests, plan(spec, 50), Ground(load_profile("paper-fig3")), 0.3)

    assert all(o.finished_s is not None for o in trace.outcomes)
    waits = [o.scheduled_s - o.request.arrival_s for o in trace.outcomes if o.scheduled_s]
    assert min(waits[1:]) > 0.29
    assert max(waits) < 0.5


def test_admission_sees_those_that_waited_for_a_grammar() -> None:
    # All at once, and memory for a third of them: without a look at vLLM's second queue, who
    # starts is whom memory holds now. With a bound: the price alone lets more be preempted.
    ground = Ground(load_profile("paper-fig3").with_kv_tokens(12_000))
    requests = [Request(0.0, 64, 100 + index % 200, max_tokens=1024) for index in range(150)]
    preempted = {
        spec: sum(o.preemptions for o in structured(requests, plan(spec, None), ground).outcomes)
        for spec in ("static", "adaptive:overflow_probability=0.02")
    }
    assert preempted["adaptive:overflow_probability=0.02"] < preempted["static"] / 2


@pytest.mark.parametrize("spec", ["static", "adaptive"])
def test_a_hybrid_model_serves_all(spec: str) -> None:
    requests = [Request(index / 4, 700, 60, max_tokens=200) for index in range(60)]
    trace = hybrid(requests, plan(spec, 50), Ground(load_profile("paper-fig3")))

    assert all(o.finished_s is not None for o in trace.outcomes)
    late = sum(step.duration_s > 0.0501 for step in trace.steps if step.decodes)
    if spec == "adaptive":
        assert late <= 0.02 * len(trace.steps)
    else:
        assert late > 0.02 * len(trace.steps)
