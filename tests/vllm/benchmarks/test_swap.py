"""KV of preempted requests that comes back over a link, where that is sooner than computing it."""

import math

import pytest

from controller.config import Sla
from controller.roles import Transfer
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.virtual.plan import EngineOptions, parse_policy
from simulator.virtual.swap import sooner
from simulator.virtual.trace import Trace
from simulator.workloads.catalog import load_workload
from simulator.workloads.traffic import draw_requests

PROFILE = load_profile("paper-fig3").with_kv_tokens(6_000)
ASKED = draw_requests(load_workload("fixed:64,300"), 60, math.inf, None, 0)
NEVER, FREE = Transfer(1e5, 1e3), Transfer(1.0, 1e15)


def served(swap: Transfer | None, spec: str = "static") -> Trace:
    options = EngineOptions(max_num_seqs=256, max_num_batched_tokens=2048)
    return replay(ASKED, parse_policy(spec, Sla(), options), Ground(PROFILE, swap=swap))


def preempted(trace: Trace) -> int:
    return sum(one.preemptions for one in trace.outcomes)


def computed(trace: Trace) -> int:
    return int(trace.column("prefill_tokens").sum())


@pytest.mark.parametrize("spec", ["static", "adaptive"])
def test_what_comes_back_is_not_computed_again(spec: str) -> None:
    again, back = served(None, spec), served(FREE, spec)
    prompts = sum(one.input_tokens for one in ASKED)
    assert preempted(again) > 10 and computed(again) > 1.2 * prompts
    assert preempted(back) > 10 and computed(back) == prompts
    assert back.end_s < again.end_s
    assert all(one.finished_s for one in back.outcomes)


def test_over_a_slow_link_nothing_comes_back() -> None:
    assert served(NEVER).end_s == served(None).end_s


def test_what_the_link_takes_stands_before_a_step() -> None:
    free, link = served(FREE), Transfer(1.0, 1e15, 0.001)
    resumed = preempted(free)
    assert preempted(served(link)) == resumed
    assert served(link).end_s == pytest.approx(free.end_s + 0.001 * resumed, rel=1e-6)


def test_the_sooner_of_the_two_by_the_step_model() -> None:
    # 0.12 ms a token here; 25 GB/s carry 327,680 bytes in 0.013 ms.
    pays = sooner(Transfer(327_680.0, 25e9, 0.005), PROFILE)
    assert [pays(n) for n in (10, 40, 50, 5000)] == [False, False, True, True]
