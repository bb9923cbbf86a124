"""Rivals that move a step's budget: their formulas on small numbers."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.baselines.options import PpasOptions, QoserveOptions, RefinerOptions
from benchmarks.baselines.ppas import Ppas
from benchmarks.baselines.qoserve import FIRST_THROUGHPUT, KEPT, Qoserve
from benchmarks.baselines.refiner import Refiner, cost_s, grid
from benchmarks.baselines.sarathi import Sarathi
from controller.records import StepSample
from tests.rivals import Case, decode, known, prefill, seen


def test_sarathi_serves_decodes_before_the_prompt_that_came_earlier() -> None:
    moves = Sarathi().decide(seen([prefill(500, 200), decode(), decode()], [prefill(9)]))
    assert (moves.running, moves.budget, moves.starts) == ([1, 2, 0], 2048, 1)


@pytest.mark.parametrize(
    ("running", "waiting", "budget"),
    [
        ([], 3, 2048),  # nobody decodes
        ([decode()], 0, 2048),
        ([decode()], 1, 2048),  # one prompt
        ([decode()], 2, 512),
        ([decode(), prefill(900, 100)], 1, 512),
        ([prefill(900, 100), prefill(900)], 5, 2048),
    ],
)
def test_ppas_caps_the_budget_where_two_prompts_compete_with_a_decode(
    running: list[Case], waiting: int, budget: int
) -> None:
    moves = Ppas(PpasOptions(budget_cap=512)).decide(seen(running, [prefill(50)] * waiting))
    assert moves.budget == budget
    assert moves.running is None


def test_ppas_plus_counts_one_large_prompt_beside_two_decodes() -> None:
    ppas = Ppas(PpasOptions(budget_cap=512, large_prefill_tokens=1000))
    assert ppas.decide(seen([decode(), decode(), prefill(2000, 1000)], [])).budget == 512
    assert ppas.decide(seen([decode(), decode(), prefill(2000, 1001)], [])).budget == 2048
    assert ppas.decide(seen([decode(), prefill(2000, 1000)], [])).budget == 2048


def test_the_refiners_rows_double_after_the_fourth() -> None:
    assert grid(8, 64) == [8, 16, 24, 32, 64]
    assert grid(8, 20) == [8, 16, 24, 32]


def test_the_refiner_reads_the_largest_chunk_inside_the_slo() -> None:
    refiner = Refiner(RefinerOptions(), known(0.05))
    # 8 decodes: 10 + 0.8 ms, 39.2 ms are 784 prompt tokens, 792 in all: 784 in multiples of 16.
    moves = refiner.decide(seen([prefill(800)] + [decode()] * 5, []))
    assert (moves.budget, moves.running) == (784, [1, 2, 3, 4, 5, 0])
    assert cost_s(known(), 256, 8, 784) <= 0.05 < cost_s(known(), 256, 8, 800)
    # 9 decodes are looked up as 16.
    assert refiner.decide(seen([decode()] * 9, [])).budget == 784
    assert refiner.table[256, 16] == 784


def test_the_refiner_leaves_the_budget_where_its_table_says_nothing() -> None:
    assert Refiner(RefinerOptions(), known(0.05)).decide(seen([prefill(80)], [])).budget == 2048
    assert Refiner(RefinerOptions(), known(None)).decide(seen([decode()], [])).budget == 2048
    # No chunk is inside 5 ms.
    tight = Refiner(RefinerOptions(slo_frac=0.1), known(0.05))
    assert tight.table[256, 8] is None
    assert tight.decide(seen([decode()], [])).budget == 2048
    beyond = seen([decode(200_000)], [])
    assert Refiner(RefinerOptions(), known(0.05)).decide(beyond).budget == 2048


def test_qoserve_takes_the_largest_budget_whose_time_fits_the_least_slack() -> None:
    qoserve = Qoserve(QoserveOptions(slack="gaps"), known(0.05))
    # One decode: 1.2 (10 + 0.1 + 0.05 (n - 1)) <= 50 ms up to n = 632.
    moves = qoserve.decide(seen([decode()], [prefill(3000)]))
    assert (moves.budget, moves.starts) == (512, 1)
    # 30 ms later 20 are left: 1.2 x 10.1 and 131 tokens.
    assert qoserve.decide(seen([decode()], [prefill(3000)], now_s=0.03)).budget == 128
    assert qoserve.decide(seen([decode()], [prefill(3000)], now_s=1.0)).budget == 128


def test_qoserve_lends_the_slack_of_a_paced_request() -> None:
    qoserve = Qoserve(QoserveOptions(ttft_s=1.0), known(0.05))
    # Its first token was due at 1.0 and came at 0.2: the third is due at 1.1.
    ahead = decode(generated=2, first_s=0.2, last_s=0.25)
    assert qoserve.decide(seen([ahead], [prefill(9000)], now_s=0.25)).budget == 2552
    assert qoserve.decide(seen([ahead], [prefill(9000)], now_s=1.05)).budget == 512
    # One that had its first token late is paced from there.
    late = decode(generated=2, first_s=3.0, last_s=3.05)
    assert qoserve.decide(seen([late], [prefill(9000)], now_s=3.05)).budget == 512


def test_qoserve_orders_prompts_by_deadline_and_length_and_lets_them_overtake() -> None:
    qoserve = Qoserve(QoserveOptions(slack="gaps"), known(0.05))
    waiting = [prefill(4000), prefill(100, arrival_s=2.0)]
    moves = qoserve.decide(seen([decode(), prefill(3000, 500)], waiting, now_s=0.0))
    # Due at 6 s and 8 ms a token: 2 + 6.8 s, before 26 s of what runs and 38 s of the long one.
    assert moves.waiting == [1, 0]
    assert moves.starts == 1
    # What is left of 512 - 1 - 100 goes to the one that runs.
    assert (moves.running, moves.longest_chunk) == ([0, 1], 411)


def test_qoserve_parks_a_running_prompt_that_its_step_has_nothing_for() -> None:
    qoserve = Qoserve(QoserveOptions(slack="gaps"), known(0.05))
    moves = qoserve.decide(seen([decode(), prefill(3000, 500)], [prefill(600, arrival_s=1.0)]))
    assert (moves.running, moves.starts, moves.longest_chunk) == ([0], 1, None)


def test_qoserve_has_a_token_for_every_decode_where_nothing_fits() -> None:
    qoserve = Qoserve(QoserveOptions(slack="gaps", least_tokens=4), known(0.001))
    moves = qoserve.decide(seen([decode()] * 9, [prefill(600)]))
    assert (moves.budget, moves.starts, moves.running) == (9, 0, list(range(9)))


def test_qoserve_relegates_who_cannot_be_in_time_for_good() -> None:
    qoserve = Qoserve(QoserveOptions(slack="gaps", ttft_s=1.0, ms_per_token=0.0), known(0.05))
    # 8,500 tokens/s: 17,000 take 2 s.
    waiting = [prefill(17_000), prefill(100, arrival_s=0.5)]
    assert qoserve.decide(seen([], waiting)).waiting == [1, 0]
    early = [prefill(100), prefill(100, arrival_s=0.5)]
    assert Qoserve(QoserveOptions(ttft_s=1.0), known()).decide(seen([], early)).waiting == [0, 1]


def test_qoserve_learns_the_throughput_of_prompts() -> None:
    qoserve = Qoserve(QoserveOptions(ttft_s=1.0), known())
    for _ in range(2000):
        qoserve.observe(StepSample(1, 100, 500, 0, 0.5), 1, 0.0)
    # 1,000 tokens/s, but for what is left of the first guess.
    assert FIRST_THROUGHPUT * KEPT**2000 < 1
    slow = [prefill(1100), prefill(100)]
    assert qoserve.decide(seen([], slow)).waiting == [1, 0]


def test_qoserve_takes_small_budgets_where_memory_is_short() -> None:
    qoserve = Qoserve(QoserveOptions(), known(None))
    assert qoserve.decide(seen([decode()], [prefill(9000)])).budget == 2552
    assert qoserve.decide(seen([decode()], [prefill(9000)], free=31_999)).budget == 512


def test_qoserve_goes_by_what_each_request_was_promised() -> None:
    qoserve = Qoserve(QoserveOptions(slack="gaps", margin=1.0), known(0.05))

    def budget(itls_s: list[float], ttfts_s: list[float]) -> int:
        shown = seen([decode(last_s=1.0)] * len(itls_s), [prefill(9000)], now_s=1.0)
        agreed = replace(shown.running, itl_s=np.array(itls_s), ttft_s=np.array(ttfts_s))
        waiting = replace(shown.first_waiting(1), itl_s=np.array([0.05]), ttft_s=np.array([2.0]))
        return qoserve.decide(
            replace(shown, running=agreed, first_waiting=lambda n: waiting)
        ).budget

    strict, loose = budget([0.05, 0.1], [2.0, 6.0]), budget([0.1, np.inf], [6.0, 600.0])
    assert strict < loose
    assert budget([np.inf], [600.0]) == qoserve.budgets[-1]


def test_qoserve_serves_prompts_by_their_own_deadlines() -> None:
    qoserve = Qoserve(QoserveOptions(ms_per_token=0.0), known(0.05))
    shown = seen([], [prefill(10), prefill(20)])
    waiting = replace(
        shown.first_waiting(2), itl_s=np.array([0.1, 0.05]), ttft_s=np.array([6.0, 2.0])
    )
    assert qoserve.decide(replace(shown, first_waiting=lambda n: waiting)).waiting == [1, 0]
