"""Columns kept over steps say what vLLM's requests say, whatever happened in between."""

import gc
import inspect
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched import scheduler as vllm_scheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from controller.models.requests import Requests
from controller.request_slo import KEY, RequestSlo
from replicas.engine.request_facts import token_counts
from replicas.engine.running_columns import FIRST_ROOM, MOST_LEFT, RunningColumns
from tests.vllm.harness import Rig, batching, engine_config, limits, ngram

CLASSES = {"gold": {"itl_ms": 50, "default": True}, "batch": {"ttft_ms": 600_000}}
SLOS = RequestSlo(0.05), RequestSlo(ttft_s=600.0)
ENGINES: dict[str, dict[str, Any]] = {
    "in step": {},
    "a step ahead": {"async_scheduling": True},
    "by priority": {"scheduling_policy": "priority", "async_scheduling": True},
    "drafts": {"speculative_config": ngram(2)},
    "shared prefixes": {"enable_prefix_caching": True},
}
# What may happen between two looks. A request is named by its number, as far as there are as many.
NUMBER = st.integers(0, 12)
EVENT = st.one_of(
    st.tuples(st.just("step"), st.integers(1, 4)),
    st.tuples(st.just("look"), st.just(0)),
    st.tuples(st.just("add"), st.integers(1, 90)),
    st.tuples(st.just("burst"), st.integers(MOST_LEFT, MOST_LEFT + 4)),
    st.tuples(st.just("session"), st.integers(1, 40)),
    st.tuples(st.just("input"), NUMBER),
    st.tuples(st.just("abort"), NUMBER),
    st.tuples(st.just("cap"), st.integers(1, 40)),
    st.tuples(st.just("reset"), st.just(0)),
    st.tuples(st.just("turn"), st.just(0)),
)


class Life:
    """One engine with few KV blocks, and what happens to it."""

    def __init__(self, config: Any, in_flight: int, drafts: bool) -> None:
        self.rig = Rig(config, in_flight=in_flight, accepted=int(drafts))
        self._made = 0
        self._sessions: list[str] = []

    def happens(self, what: str, much: int) -> None:
        scheduler = self.rig.scheduler
        if what == "step":
            for _ in range(much):
                self.rig.step()
        elif what == "look":
            self.look()
        elif what == "add":
            self._add(much, output=1 + 7 * much % 40)
        elif what == "burst":
            for _ in range(much):
                self._add(1, output=3)
        elif what == "session":
            self._sessions.append(self._add(much, output=3, resumable=True))
        elif what == "input" and much < len(self._sessions):
            if self._sessions[much] in scheduler.requests:
                self._add(2, output=3, name=self._sessions[much], resumable=True)
        elif what == "abort" and much < len(scheduler.requests):
            self.rig.abort(list(scheduler.requests)[-1 - much])
        elif what == "cap":
            self.rig.exchange(limits(much))
        elif what == "reset" and not self._sessions:  # vLLM cannot while one holds its blocks
            scheduler.reset_prefix_cache(reset_running_requests=True)
        elif what == "turn":  # another order, which no method of vLLM's tells of
            scheduler.running.reverse()

    def _add(self, prompt: int, output: int, name: str | None = None, **more: Any) -> str:
        self._made += 1
        name = name or f"r{self._made}"
        told = {KEY: SLOS[self._made % 2].to_wire()}
        params = SamplingParams(max_tokens=output, ignore_eos=True, extra_args=told)
        more |= {"arrival_time": self.rig.now_s, "priority": self._made % 3}
        tokens = [1] * min(prompt, 20) + [2 + self._made] * max(prompt - 20, 0)
        hasher = self.rig._hasher
        self.rig.scheduler.add_request(
            Request(name, tokens, params, None, block_hasher=hasher, **more)
        )
        return name

    def look(self) -> None:
        scheduler = self.rig.scheduler
        running = scheduler.running
        kept = scheduler._read_batch().running
        computed = [r.num_computed_tokens for r in running]
        shared = None if kept.shared is None else kept.shared.tolist()
        assert_same(
            kept, token_counts(running, computed, shared, scheduler._classes.slo_ids(running))
        )


def assert_same(kept: Requests, fresh: Requests) -> None:
    for name in ("computed", "tokens", "outputs", "allowed", "shared", "own_slo_ids"):
        one, other = getattr(kept, name), getattr(fresh, name)
        assert (one is None) == (other is None), name
        assert one is None or np.array_equal(one, other), name


class Engine:
    """An engine of one kind, as often as one is asked for."""

    def __init__(self, kind: str, model: Any) -> None:
        args = {"max_num_seqs": 40, "max_num_batched_tokens": 128, "blocks": 40} | ENGINES[kind]
        own = batching(policy="adaptive")
        own["brimful"]["classes"] = CLASSES
        self._config = engine_config(model, additional_config=own, **args)
        self._in_flight = 2 if args.get("async_scheduling") else 1
        self._drafts = "speculative_config" in args

    def life(self) -> Life:
        return Life(self._config, self._in_flight, self._drafts)


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, tiny_llama: Any) -> Engine:
    return Engine(request.param, tiny_llama)


@settings(max_examples=12, deadline=None)
@given(events=st.lists(EVENT, max_size=40), always=st.booleans())
def test_what_is_kept_is_what_vllm_has(engine, events, always):
    life = engine.life()
    life.happens("burst", MOST_LEFT)
    life.happens("step", 1)
    life.look()
    for what, much in events:
        life.happens(what, much)
        if always:
            life.look()
    life.look()


def test_a_session_with_its_next_input_has_another_prompt(tiny_llama: Any) -> None:
    config = engine_config(tiny_llama, additional_config=batching(policy="adaptive"))
    life = Life(config, in_flight=1, drafts=False)
    life.happens("session", 10)
    life.happens("step", 1)
    life.look()
    life.happens("step", 2)  # it ends, and waits for its client
    life.happens("input", 0)
    life.happens("step", 1)
    assert life.rig.scheduler.running[0].num_prompt_tokens > 10
    life.look()


def test_vllm_changes_what_is_kept_where_the_columns_are_told() -> None:
    whole = inspect.getsource(vllm_scheduler)
    told = inspect.getsource(Scheduler._update_request_as_session)
    assert told.count(".num_prompt_tokens = ") == whole.count(".num_prompt_tokens = ") == 1
    assert told.count(".max_tokens = ") == whole.count(".max_tokens = ")
    assert "_output_token_ids = " not in whole  # one list for as long as the request is here


def test_an_engine_that_is_idle_holds_nobody_that_ran(tiny_llama: Path) -> None:
    rig = Rig.led(tiny_llama)
    for name in "abc":
        rig.add(name, prompt=10, output=3)
    held = [weakref.ref(rig.scheduler.requests[name]) for name in "abc"]
    rig.step()
    rig.scheduler._read_batch()  # as a policy does that looks at who runs
    rig.run()
    gc.collect()
    assert [ref() for ref in held] == [None] * 3


def test_the_columns_grow_with_the_batch() -> None:
    columns = RunningColumns(None)
    many = [
        Request(str(k), [1] * (k + 1), SamplingParams(max_tokens=9), None)
        for k in range(2 * FIRST_ROOM + 1)
    ]
    found = columns.read(many, np.zeros(len(many), dtype=np.int64), None)
    assert found.tokens.tolist() == list(range(1, len(many) + 1))
    assert found.allowed.tolist() == [9] * len(many)
