"""Conversations: what is drawn, and what is refused."""

from itertools import pairwise

import numpy as np
import pytest

from controller.errors import ConfigError
from simulator.workloads.catalog import load_workload
from simulator.workloads.conversations import MOST_CONTEXT, SYSTEM_TOKENS
from simulator.workloads.requests import Request, every, follow_up
from simulator.workloads.traffic import draw_requests


def test_the_default_is_as_stated() -> None:
    drawn = draw_requests(load_workload("agents"), 300, 0.2, None, 0)
    turns = [1 + len(first.then) for first in drawn]
    pauses_s = [r.arrival_s for first in drawn for r in first.then]
    assert 38 <= np.median(turns) <= 48
    assert 0.84 <= np.mean(np.array(pauses_s) < 1.0) <= 0.88
    assert np.mean([r.output_tokens for r in every(drawn)]) == pytest.approx(100, rel=0.1)
    assert max(r.input_tokens + r.output_tokens for r in every(drawn)) <= MOST_CONTEXT


def test_a_prompt_holds_all_before_it_and_something_new() -> None:
    for first in draw_requests(load_workload("agents:5,80,20,0.1"), 40, 1.0, None, 3):
        assert first.input_tokens > SYSTEM_TOKENS
        turns = [first, *first.then]
        for before, after in pairwise(turns):
            assert after.input_tokens > before.input_tokens + before.output_tokens
            assert (after.conversation, after.prefix) == (before.conversation, before.prefix)
            assert after.max_tokens is not None


def test_more_conversations_leave_the_first_ones_as_they_were() -> None:
    source = load_workload("agents").source
    few, many = (source.draw(n, np.random.default_rng(7)) for n in (3, 9))
    assert many[:3] == few


def test_what_follows_comes_its_pause_after_the_answer() -> None:
    second, third = Request(0.5, 30, 5), Request(2.0, 50, 5)
    after = follow_up(Request(0.0, 10, 5, then=(second, third)), 4.0)
    assert after is not None
    assert (after.arrival_s, after.input_tokens, after.then) == (4.5, 30, (third,))
    assert follow_up(third, 4.0) is None


@pytest.mark.parametrize("spec", ["agents:1,2,3", "agents:0,400,100,1", "agents:a,1,1,1",
                                  "agents:43,400,100,nan", "agents:43,400,100,-1"])  # fmt: skip
def test_a_wrong_spec_is_named_with_what_is_allowed(spec: str) -> None:
    with pytest.raises(ConfigError, match="agents:TURNS,TOOL,OUT,PAUSE_S"):
        load_workload(spec)
