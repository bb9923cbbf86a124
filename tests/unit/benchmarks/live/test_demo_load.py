"""What the demo asks for, sized by the steps it timed."""

import pytest

from benchmarks.live import demo_load
from benchmarks.live.calibrate import PROMPT_TOKENS, StepTimes
from benchmarks.live.demo_load import BURST, LONG_TOKENS, STREAM_TOKENS, make_load

TIMES = StepTimes(decode_s=0.0025, prompt_s=0.05)


@pytest.mark.parametrize(
    ("decode_s", "sla_ms"), [(0.0025, 50.0), (0.0026, 55.0), (0.0005, 20.0), (0.02, 400.0)]
)
def test_the_sla_is_20_steps_in_whole_fives(decode_s: float, sla_ms: float) -> None:
    assert StepTimes(decode_s, 0.1).sla_ms() == sla_ms


def test_both_kinds_of_request_come_over_the_whole_time() -> None:
    load = make_load(TIMES, replicas=2, seconds=20.0)
    streams = [ask for ask in load.asks if ask.max_tokens == STREAM_TOKENS]
    long_prompts = [ask for ask in load.asks if ask.max_tokens == LONG_TOKENS]
    assert (len(streams), len(long_prompts)) == (load.streams, load.long_prompts)
    assert len(streams) + len(long_prompts) == len(load.asks)
    assert all(len(ask.prompt) == PROMPT_TOKENS for ask in long_prompts)
    for asks in (streams, long_prompts):
        assert 0 <= asks[0].at_s < 4
        assert 16 < asks[-1].at_s <= 20
    assert [ask.at_s for ask in load.asks] == sorted(ask.at_s for ask in load.asks)


def test_long_prompts_take_their_share_of_each_engine() -> None:
    load = make_load(TIMES, replicas=2, seconds=40.0)
    times = sorted({ask.at_s for ask in load.asks if ask.max_tokens == LONG_TOKENS})
    between_s = times[1] - times[0]
    assert BURST * TIMES.prompt_s / between_s == pytest.approx(demo_load.PREFILL_FRAC)
    at_once = [ask for ask in load.asks if ask.at_s == times[0]]
    assert len([ask for ask in at_once if ask.max_tokens == LONG_TOKENS]) == BURST * 2


def test_where_a_prompt_takes_longer_than_the_sla_prompts_are_shorter() -> None:
    """As many stalls as on another machine: p99 of the gaps is what the demo compares."""
    usual = make_load(TIMES, replicas=2, seconds=40.0)
    slow = make_load(StepTimes(TIMES.decode_s, 4 * TIMES.prompt_s), replicas=2, seconds=40.0)
    # 80 steps of decodes each, to be 10; those of 20 are as they are.
    assert (usual.prompt_tokens, slow.prompt_tokens) == (PROMPT_TOKENS, round(PROMPT_TOKENS / 8))
    assert slow.streams == usual.streams
    assert slow.long_prompts == pytest.approx(2 * usual.long_prompts, rel=0.1)
    of = {len(ask.prompt) for ask in slow.asks if ask.max_tokens == LONG_TOKENS}
    assert of == {slow.prompt_tokens}


def test_a_slower_machine_is_asked_for_less() -> None:
    slow = StepTimes(decode_s=0.005, prompt_s=0.1)
    fast, slower = (make_load(times, 2, 20.0) for times in (TIMES, slow))
    assert fast.streams == pytest.approx(2 * slower.streams, abs=1)
    assert fast.long_prompts > slower.long_prompts


def test_the_requests_are_of_the_seed() -> None:
    assert make_load(TIMES, 2, 5.0) == make_load(TIMES, 2, 5.0)
    assert make_load(TIMES, 2, 5.0) != make_load(TIMES, 2, 5.0, seed=2)


def test_a_short_run_has_one_of_each_at_least() -> None:
    load = make_load(StepTimes(0.1, 5.0), replicas=1, seconds=1.0)
    assert (load.streams, load.long_prompts) == (1, BURST)
