"""For any workload and policy: no token is lost or made up, and KV memory is never exceeded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.config import Sla
from controller.policies.registry import POLICIES
from replicas.profiles.disturbances import Disturbances, EncoderWork, Pauses, SlowPhases
from replicas.profiles.profile import LinearCost, StepProfile
from simulator.replay.engine import Scenario, replay
from simulator.virtual.plan import EngineOptions, parse_policy
from simulator.virtual.rivals import NAMED
from simulator.workloads.requests import Request
from tests.property.strategies import examples

COST = LinearCost(0.02, 0.001, 1e-6, 1e-4, 1e-8)
DISTURBED = Disturbances(
    noise_cv=0.3,
    pauses=(Pauses(0.1, 0.1),),
    slow=(SlowPhases(0.2, 2.0, 0.5),),
    encoder=EncoderWork(0.3, 0.08),
    mixed_s=0.003,
    graph_sizes=(4, 8),
)
VARIANTS = (
    *POLICIES,
    *NAMED,
    "static:watermark=0.2",
    "paper:memory=exact",
    "paper:memory=live,units=blocks",
    "paper:l0=buffer",
    "paper:size_chunk=true",
    "static:async_scheduling=true",
    "static:async_scheduling=true,enable_prefix_caching=true",
    "adaptive:async_scheduling=true",
    "qoserve:slack=gaps,token_step=16,least_tokens=16,async_scheduling=true",
)

requests = st.lists(
    st.builds(
        lambda gap, i, o, spare, priority: (gap, i, o, spare, priority),
        st.floats(0, 0.5),
        st.integers(1, 150),
        st.integers(1, 80),
        st.none() | st.integers(0, 20),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=25,
)


def placed(drawn: list[tuple[float, int, int, int | None, int]]) -> list[Request]:
    """Requests with these gaps, lengths, tokens allowed beyond the output, and priorities."""
    now_s, made = 0.0, []
    for gap_s, i, o, spare, priority in drawn:
        now_s += gap_s
        made.append(Request(now_s, i, o, None if spare is None else o + spare, priority))
    return made


@pytest.mark.parametrize("spec", VARIANTS)
@examples(0.05)
@given(
    drawn=requests,
    kv_tokens=st.integers(240, 1200),
    seqs=st.integers(1, 12),
    more_tokens=st.integers(0, 200),
    itl_ms=st.none() | st.integers(15, 60),
    disturbances=st.sampled_from([Disturbances(), DISTURBED]),
)
def test_every_token_asked_for_is_produced_once(
    spec: str,
    drawn: list[tuple[float, int, int, int | None, int]],
    kv_tokens: int,
    seqs: int,
    more_tokens: int,
    itl_ms: int | None,
    disturbances: Disturbances,
) -> None:
    engine = EngineOptions(max_num_seqs=seqs, max_num_batched_tokens=seqs + more_tokens)
    plan = parse_policy(spec, Sla(itl_ms=itl_ms), engine)
    profile = StepProfile("p", "", kv_tokens, seqs, seqs, COST)
    asked = placed(drawn)

    trace = replay(asked, plan, Scenario(profile, disturbances))

    assert [o.request for o in trace.outcomes] == asked
    for number, outcome in enumerate(trace.outcomes):
        if outcome.refused:
            assert outcome.request.input_tokens + outcome.request.output_tokens > kv_tokens - 16
            continue
        assert outcome.tokens == outcome.request.output_tokens
        assert (trace.gaps.request == number).sum() == outcome.tokens - 1
        assert outcome.scheduled_s is not None and outcome.first_token_s is not None
        assert outcome.finished_s is not None
        assert outcome.request.arrival_s <= outcome.scheduled_s < outcome.first_token_s
        assert outcome.first_token_s <= outcome.finished_s <= trace.end_s
    for step in trace.steps:
        assert step.kv_used_tokens <= trace.kv_tokens <= kv_tokens
        assert step.running <= step.cap <= seqs
        assert step.decodes <= step.running
    tokens = sum(o.tokens for o in trace.outcomes)
    served = [o for o in trace.outcomes if not o.refused]
    assert len(trace.gaps.length_s) == tokens - len(served)
