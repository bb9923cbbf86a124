"""Rivals that hold starts back, or decodes."""

from dataclasses import replace

from benchmarks.baselines.fill_batch import FillBatch
from benchmarks.baselines.options import FillBatchOptions
from benchmarks.baselines.prefill_first import PrefillFirst
from benchmarks.baselines.rival import kept
from controller.records import StepSample
from tests.rivals import ENGINE, decode, prefill, seen


def test_a_batch_is_filled_for_so_long() -> None:
    rival = FillBatch(FillBatchOptions(wait_ms=250, waiting_served_ratio=10))
    waiting = [prefill(100, arrival_s=1.0), prefill(100, arrival_s=1.2)]
    assert rival.decide(seen([decode()], waiting, now_s=1.2)).starts == 0
    assert rival.decide(seen([decode()], waiting, now_s=1.25)).starts == 2


def test_or_until_enough_wait_for_those_that_run() -> None:
    rival = FillBatch(FillBatchOptions(wait_ms=1e9, waiting_served_ratio=1.5))
    running, one = [decode()] * 4, prefill(100)
    assert rival.decide(seen(running, [one] * 5)).starts == 0
    assert rival.decide(seen(running, [one] * 6)).starts == 6
    assert rival.decide(seen([], [one])).starts == 1


def test_or_for_so_many_steps_without_a_prompt() -> None:
    rival = FillBatch(FillBatchOptions(wait_ms=1e9, waiting_served_ratio=9, wait_steps=2))
    view = seen([decode()], [prefill(100)])
    for steps, starts in ((1, 0), (2, 1)):
        rival.observe(StepSample(1, 100, 0, 0, 0.03), 1, 0.0)
        assert rival.decide(view).starts == starts, steps
    rival.observe(StepSample(1, 100, 100, 5000, 0.03), 2, 0.0)
    assert rival.decide(view).starts == 0


def test_decodes_are_left_out_while_there_are_prompts_to_compute() -> None:
    moves = PrefillFirst().decide(
        seen([decode(), prefill(900, 300), decode()], [prefill(1400)] * 2)
    )
    assert (moves.running, moves.starts) == ([1], 1)  # 600 left of one, 1,400: 2,000 of 2,048


def test_all_decodes_may_be_left_out_for_one_that_starts() -> None:
    view = seen([decode(), decode()], [prefill(3000)])
    moves = kept(PrefillFirst().decide(view), view)
    assert (moves.running, moves.starts) == ([], 1)


def test_decodes_go_on_where_no_prompt_fits_in_memory() -> None:
    view = seen([decode(), decode()], [prefill(3000)], engine=replace(ENGINE, kv_tokens=2000))
    moves = PrefillFirst().decide(replace(view, kv_free_tokens=1000))
    assert (moves.running, moves.starts) == (None, 0)
