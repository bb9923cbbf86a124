"""Paced delivery on vLLM's own scheduler: slack as it is, and prompts that use it up."""

from collections import deque
from types import SimpleNamespace

import pytest

from controller.models.step_time import StepModel
from controller.policies.base import Batch
from replicas.engine.in_flight import ends_of, scheduled_at
from tests.vllm.replicas.rigs import late_tokens, paced_rig


def test_leads_are_those_of_the_requests_that_decode(tiny_llama):
    rig = paced_rig(tiny_llama)
    rig.add("a", prompt=20, output=9)
    rig.step()  # its first token 10 ms after it came: ahead by 1.99 s
    rig.add("b", prompt=600, output=9)
    rig.step()  # half of a prompt beside a token
    batch: Batch = rig.scheduler._read_batch()
    assert batch.slack.slack_s.tolist() == pytest.approx([1.99 + 0.05 - 0.01])
    assert batch.slack.generated.tolist() == [2]
    rig.step()
    assert len(rig.scheduler._read_batch().slack.slack_s) == 2
    rig.run()
    assert not len(rig.scheduler._read_batch().slack.slack_s)


def test_with_a_step_under_way_leads_are_of_when_it_ends(tiny_llama):
    rig = paced_rig(tiny_llama, in_flight=2)
    rig.add("a", prompt=20, output=50)
    rig.go_on(6)
    found = rig.scheduler._read_batch().slack
    ahead = sum(out.total_num_scheduled_tokens > 0 for out, _ in rig.scheduler._scheduled)
    assert ahead
    done = len(rig.scheduler.requests["a"]._output_token_ids)
    assert found.generated.tolist() == [done + ahead]
    rig.run()
    assert rig.is_whole("a", 50)


def test_how_long_the_next_one_has_waited_for_its_first_token(tiny_llama):
    rig = paced_rig(tiny_llama, max_num_seqs=3)
    rig.add("a", prompt=20, output=90)
    rig.go_on(3)
    assert rig.scheduler._read_batch().slack.waiting_s == 0
    rig.add("b", prompt=1000, output=9)  # two steps
    came_s = rig.now_s
    assert rig.scheduler._read_batch().slack.waiting_s == 0
    rig.step()
    rig.add("c", prompt=20, output=9)
    assert rig.scheduler._read_batch().slack.waiting_s == pytest.approx(rig.now_s - came_s)
    while not rig.tokens.get("c"):
        rig.step()
    rig.add("d", prompt=20, output=9)
    came_s = rig.now_s
    rig.step()
    assert [r.request_id for r in rig.scheduler.waiting] == ["d"]  # three run
    assert rig.scheduler._read_batch().slack.waiting_s == pytest.approx(rig.now_s - came_s)
    rig.run()


def test_a_step_under_way_ends_when_the_model_says(tiny_llama):
    rig = paced_rig(tiny_llama, in_flight=2)
    rig.add("a", prompt=20, output=50)
    rig.go_on(6)
    scheduler = rig.scheduler
    without = scheduler._read_batch().slack.slack_s
    assert [s for _, s in scheduler._in_flight()] == pytest.approx([rig.now_s + rig.step_s])
    model = StepModel(c0=0.2, c1=0.1, c2=0.0, c3=0.0, c4=0.0, sigma_s=0.0)
    scheduler.governor.step_half = SimpleNamespace(model=model)
    leads = scheduler._read_batch().slack.slack_s
    assert leads.tolist() == pytest.approx([float(without[0]) - (0.3 - rig.step_s)])


def test_steps_under_way_end_one_after_the_other():
    def step(decodes):
        cached = SimpleNamespace(
            req_ids=[str(k) for k in range(decodes)],
            num_computed_tokens=[10] * decodes,
            num_output_tokens=[1] * decodes,
        )
        given = dict.fromkeys(cached.req_ids, 1)
        return SimpleNamespace(
            scheduled_cached_reqs=cached,
            scheduled_new_reqs=[],
            num_scheduled_tokens=given,
            total_num_scheduled_tokens=decodes,
            scheduled_spec_decode_tokens={},
        )

    one, empty, two = step(1), step(0), step(2)
    model = StepModel(c0=1.0, c1=1.0, c2=0.0, c3=0.0, c4=0.0, sigma_s=0.0)
    scheduled = [(one, 9.0), (empty, 9.5), (two, 10.0)]
    assert ends_of(scheduled, 10.0, 10.1, 0.5, model) == [(one, 12.0), (two, 15.0)]
    assert ends_of(scheduled, 10.0, 10.1, 0.5, None) == [(one, 10.5), (two, 11.0)]
    # The engine was idle: the first begins when it was scheduled.
    assert ends_of([(two, 20.0)], 10.0, 20.0, 0.5, model) == [(two, 23.0)]
    assert not ends_of([], 10.0, 10.0, 0.5, model)
    # The first should have been back: the second begins no sooner than now.
    assert ends_of(scheduled, 10.0, 13.0, 0.5, model) == [(one, 13.0), (two, 16.0)]


def test_late_tokens_are_counted_by_when_they_were_due(tiny_llama, monkeypatch):
    rig = paced_rig(tiny_llama)
    late = late_tokens(rig, monkeypatch)
    rig.add("a", prompt=20, output=5)
    rig.step()
    rig.step_s = 1.0
    rig.run()
    # Tokens at 1.01, 2.01, 3.01 and 4.01 s, due at 2.05, 2.1, 2.15 and 2.2: the last one too is
    # looked at, though the request has ended with it.
    assert late == [0, 0, 0, 1, 1]
    assert not rig.scheduler._pacing._begin_s


def test_steps_whose_output_never_comes_are_passed_over():
    empty, one, two = object(), object(), object()
    scheduled = deque([(empty, 1.0), (one, 2.0), (two, 3.0)])
    assert scheduled_at(scheduled, one, 9.0) == 2.0
    assert scheduled_at(scheduled, two, 9.0) == 3.0
    assert scheduled_at(scheduled, two, 9.0) == 9.0


def test_one_that_ended_with_its_first_token_and_is_kept_has_no_pace(tiny_llama):
    rig = paced_rig(tiny_llama)
    rig.scheduler._connector_finished = lambda request: (True, None)  # it still needs the blocks
    rig.add("a", prompt=20, output=1)
    rig.step()
    assert "a" in rig.scheduler.requests
    assert not rig.scheduler._pacing._begin_s
    assert not rig.scheduler._pacing._ids


def test_who_is_aborted_leaves_at_once(tiny_llama):
    rig = paced_rig(tiny_llama, in_flight=2)
    rig.add("a", prompt=20, output=50).sampling_params.stop = ["its end"]  # met by the frontend
    rig.add("b", prompt=20, output=50)
    rig.go_on(6)
    rig.abort("a")  # with a token under way, which its client will not see
    assert rig.scheduler._pacing._ids == ["b"]
    rig.run()
    assert not rig.scheduler._pacing._begin_s


def test_a_preempted_request_comes_back_with_its_pace(tiny_llama):
    rig = paced_rig(tiny_llama, blocks=8)
    rig.add("a", prompt=40, output=30)
    rig.add("b", prompt=40, output=30)
    while not rig.scheduler._lost:
        rig.step()
    (lost,) = rig.scheduler._lost
    assert len(rig.scheduler._read_batch().slack.slack_s) == 1
    begin_s = rig.scheduler._pacing._begin_s[lost]
    while rig.scheduler._lost:
        rig.step()
    tokens = rig.scheduler.requests[lost].num_output_tokens
    found = rig.scheduler._read_batch().slack
    assert tokens in found.generated.tolist()
    index = found.generated.tolist().index(tokens)
    expected_s = begin_s + (tokens - 1) * 0.05 - rig.now_s
    assert found.slack_s[index] == pytest.approx(expected_s)
    rig.run()
    assert rig.is_whole("a", 30) and rig.is_whole("b", 30)


@pytest.mark.parametrize("in_flight", [1, 2])
def test_after_new_weights_everybody_has_its_pace_again(tiny_llama, in_flight):
    rig = paced_rig(tiny_llama, in_flight=in_flight)
    for name in "abc":
        rig.add(name, prompt=20, output=300)
    rig.go_on(5)
    begin_s = dict(rig.scheduler._pacing._begin_s)
    while rig._queue:
        rig.take()
    rig.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert not len(rig.scheduler._read_batch().slack.slack_s)
    rig.go_on(64)
    found = rig.scheduler._read_batch().slack
    ahead = sum(out.total_num_scheduled_tokens > 0 for out, _ in rig.scheduler._scheduled)
    tokens = [len(rig.scheduler.requests[name]._output_token_ids) for name in "abc"]
    assert found.generated.tolist() == [n + ahead for n in tokens]
    due_s = [begin_s[name] + (n + ahead - 1) * 0.05 for name, n in zip("abc", tokens, strict=True)]
    now_s = rig.now_s + ahead * rig.scheduler._last_step_s
    assert found.slack_s.tolist() == pytest.approx([s - now_s for s in due_s])
    rig.run()
    assert all(rig.is_whole(name, 300) for name in "abc")


@pytest.mark.parametrize("in_flight", [1, 2])
def test_one_that_is_preempted_before_its_first_token_is_back_does_not_decode(
    tiny_llama, in_flight
):
    rig = paced_rig(tiny_llama, blocks=10, in_flight=in_flight)
    rig.add_all(4, prompt=33, output=60)
    for _ in range(400):
        rig.step()
        pacing = rig.scheduler._pacing
        if pacing._steps and pacing._steps % 64 == 0:
            running = {r.request_id for r in rig.scheduler.running}
            assert set(pacing._ids) <= running
    rig.run()
    assert rig.all_whole(4, 60)
