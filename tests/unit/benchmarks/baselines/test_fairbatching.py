"""FairBatching: who is served first, and how long a step may take. Steps: see ``seen.step_s``."""

from dataclasses import replace

from benchmarks.baselines.fairbatching import FairBatching
from benchmarks.baselines.options import FairBatchingOptions
from tests.unit.benchmarks.baselines.seen import ENGINE, KNOWN, decode, prompt, seen


def test_a_step_ends_by_the_least_slack_of_the_decodes() -> None:
    rival = FairBatching(FairBatchingOptions(ttft_s=1.0), KNOWN)
    # Token 3 is due at 0 + 1 + 3 x 0.05 s, 0.15 s from now: 1,400 tokens.
    moves = rival.decide(seen([decode(0.9, 3), decode(0.9, 9)], [prompt(2000)]))
    assert moves.budget == 1400


def test_a_late_decode_leaves_one_itl_to_the_step() -> None:
    rival = FairBatching(FairBatchingOptions(slack="gaps"), KNOWN)
    moves = rival.decide(seen([decode(0.5), decode(1.0)], [prompt(2000)]))
    assert (moves.budget, moves.starts, moves.running) == (400, 1, [0, 1])


def test_a_decode_that_is_ahead_waits_while_prompts_take_the_step() -> None:
    rival = FairBatching(FairBatchingOptions(ttft_s=1.0), KNOWN)
    urgent, ahead = decode(0.9, 1), decode(0.9, 40)
    assert rival.decide(seen([ahead, urgent], [prompt(2000)])).running == [1]
    assert rival.decide(seen([ahead, urgent], [])).running == [1, 0]


def test_prompts_are_served_by_deadline() -> None:
    rival = FairBatching(FairBatchingOptions(slack="gaps"), KNOWN)
    waiting = [prompt(300, arrival_s=0.5), prompt(200, arrival_s=0.2)]
    moves = rival.decide(seen([decode(1.0)], waiting))
    assert (moves.waiting, moves.starts) == ([1, 0], 2)


def test_a_prompt_takes_no_more_than_the_engine_lets_one_have() -> None:
    rival = FairBatching(FairBatchingOptions(slack="gaps"), KNOWN)
    engine = replace(ENGINE, long_prompt_tokens=64)
    moves = rival.decide(seen([decode(1.0)], [prompt(300), prompt(40)], engine=engine))
    assert (moves.budget, moves.starts) == (1 + 64 + 40, 2)
