"""Turns that follow answers, in an engine and in fleets, with vLLM's own prefix cache."""

import argparse
import json
from itertools import pairwise

import pytest

from controller.config import Sla
from controller.errors import ConfigError
from controller.roles import Transfer
from replicas.profiles.profile_file import load_profile
from serve_app.cli import main
from simulator.replay.arguments import add_arguments, read_order
from simulator.replay.engine import Ground, replay
from simulator.replay.fleet import Fleet
from simulator.replay.steering import Fixed
from simulator.virtual.plan import EngineOptions, engine_of, parse_policy
from simulator.virtual.trace import Trace
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import every
from simulator.workloads.traffic import draw_requests

PROFILE = load_profile("paper-fig3")
CACHING = EngineOptions(**{**engine_of(PROFILE).model_dump(), "enable_prefix_caching": True})
PLAN, GROUND = parse_policy("static", Sla(), CACHING), Ground(PROFILE)
ASKED = draw_requests(load_workload("agents:8,300,30,0.3"), 6, 1.0, None, 1)


def check_turns(trace: Trace) -> None:
    """All are served, and each turn comes its pause after the answer before it."""
    assert len(trace.outcomes) == sum(1 for _ in every(ASKED))
    for first in ASKED:
        own = [o for o in trace.outcomes if o.request.conversation == first.conversation]
        own.sort(key=lambda o: o.request.arrival_s)
        for before, after, turn in zip(own, own[1:], first.then, strict=False):
            assert before.finished_s is not None
            pause_s = after.request.arrival_s - before.finished_s
            assert pause_s == pytest.approx(turn.arrival_s)
        assert [o.request.input_tokens for o in own[1:]] == [r.input_tokens for r in first.then]


def test_a_turn_computes_what_is_new_and_no_more() -> None:
    trace = replay(ASKED, PLAN, GROUND)
    check_turns(trace)
    prompts = sum(r.input_tokens for r in every(ASKED))
    new = sum(step.prefill_tokens for step in trace.steps)
    least = 0
    for first in ASKED:
        turns = [first, *first.then]
        least += first.input_tokens + sum(
            after.input_tokens - before.input_tokens - before.output_tokens
            for before, after in pairwise(turns)
        )
    # A block of 16 at each turn's end is computed again; the system prompt once for all.
    assert 0.5 * least < new < least + 17 * len(trace.outcomes) < prompts / 2


def test_without_prefix_caching_each_prompt_is_computed_whole() -> None:
    trace = replay(ASKED, parse_policy("static", Sla(), engine_of(PROFILE)), GROUND)
    assert sum(s.prefill_tokens for s in trace.steps) == sum(r.input_tokens for r in every(ASKED))


@pytest.mark.parametrize(("engines", "prefill"), [(3, 0), (2, 1)])
def test_a_fleet_goes_on_until_the_last_turn(engines: int, prefill: int) -> None:
    link, sla = Transfer(1e5, 1e9), Sla(itl_ms=50)
    steering = Fixed(engines, prefill, link, sla)
    check_turns(Fleet(ASKED, PLAN, GROUND, engines, link, steering).run(drain=True).trace)


def test_a_conversation_that_does_not_fit_ends() -> None:
    trace = replay(ASKED, PLAN, Ground(PROFILE.with_kv_tokens(4096)))
    assert 0 < len(trace.outcomes) < sum(1 for _ in every(ASKED))
    assert any(outcome.refused for outcome in trace.outcomes)


@pytest.mark.parametrize("roles", [[], ["--roles", "1:1"]])
def test_the_command_takes_them(roles: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    spec = ["--workload", "agents:3,200,20,0.2", "--requests", "4", "--rate", "1"]
    assert main(["replay", *spec, "--engines", "2", "--prefix-caching", "--json", *roles]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["requests"] == found["finished"] > 4


@pytest.mark.parametrize("more", [["--find-capacity", "--sla-itl-ms", "50"],
                                  ["--policy", "request-level", "--rate", "1"]])  # fmt: skip
def test_what_has_to_know_all_before_is_refused(more: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(ConfigError, match="not allowed with agents"):
        read_order(parser.parse_args(["--workload", "agents", *more]))
