"""Algorithm 1 (memory), line by line: one report in, one batch size out."""

from typing import Any

import pytest

from controller.config import PaperOptions
from controller.models.memory import theta
from controller.policies.paper import MemoryBatching
from controller.records import ReplicaReport
from tests.builders import engine, moments_of, report

B_MAX = 256
FIXED = moments_of([(100, 100)] * 4)  # m = 200, s = 0
MIXED = moments_of([(50, 50), (150, 150)])  # m = 200, s^2 = 2500 + 2500
NOTHING = moments_of([])


def algorithm(b_max: int = B_MAX, **options: Any) -> MemoryBatching:
    return MemoryBatching(PaperOptions(**options), 0.02, b_max)


def busy(decoding: int = 10, **overrides: Any) -> ReplicaReport:
    return report(decoding=decoding, running=decoding, prefilling=5, **overrides)


def test_b_0_is_b_max_and_holds_while_nothing_finished() -> None:
    assert algorithm(memory="exact").batch(busy(), NOTHING, 0) == B_MAX


@pytest.mark.parametrize(("n_d", "n_p"), [(0, 5), (10, 0), (0, 0)])
def test_line_4_holds_the_batch_unless_requests_both_prefill_and_decode(n_d: int, n_p: int) -> None:
    memory = algorithm(memory="exact")
    assert memory.batch(busy(), FIXED, 0) == 100
    idle = report(decoding=n_d, prefilling=n_p, engine=engine(kv_tokens=1000))
    assert memory.batch(idle, FIXED, 1) == 100  # line 3: b_t <- b_{t-1}


def test_line_6_leaves_the_running_decodes_to_the_governor() -> None:
    # 120 run on: they drain to 100 (test_governor_limits.py), no new one starts.
    assert algorithm(memory="exact").batch(busy(decoding=120), FIXED, 0) == 100


def test_a_batch_for_which_there_is_no_memory_is_one() -> None:
    tiny = busy(engine=engine(kv_tokens=100))
    assert algorithm(memory="exact").batch(tiny, FIXED, 0) == 1
    memory = algorithm(l0="buffer", l0_period_s=0.1)
    assert [memory.batch(tiny, MIXED, float(k)) for k in range(3)] == [1, 1, 1]


def test_line_6_never_goes_above_b_max() -> None:
    assert algorithm(b_max=64, memory="exact").batch(busy(), FIXED, 0) == 64


def test_exact_is_eq_12() -> None:
    assert algorithm(memory="exact").batch(busy(), MIXED, 0) == 92


def test_exact_in_blocks_counts_half_an_empty_block_per_request() -> None:
    # 1250 blocks over 200/16 + 0.5 = 13 blocks each.
    assert algorithm(memory="exact", units="blocks").batch(busy(), FIXED, 0) == 96


def test_buffer_is_eq_14_with_the_deviation_at_the_previous_batch() -> None:
    memory = algorithm(l0="buffer")
    # L0 = theta sqrt(256 x 5000) = 2323.6: (20000 - 2323.6) / 200
    assert theta(0.02) * (256 * 5000) ** 0.5 == pytest.approx(2323.55, abs=0.01)
    assert memory.batch(busy(), MIXED, 0) == 88


def test_line_1_is_computed_anew_once_a_period_and_the_mean_at_once() -> None:
    memory = algorithm(l0="buffer", l0_period_s=10)
    longer = moments_of([(150, 150), (250, 250)])  # m = 400, the same deviation
    assert memory.batch(busy(), MIXED, 0) == 88
    assert memory.batch(busy(), longer, 9.9) == 44  # (20000 - 2323.6) / 400: old L0, new mean
    assert memory.batch(busy(), longer, 10.0) == 47  # L0 = theta sqrt(44 x 5000) = 963.3


@pytest.mark.parametrize("kv_tokens", [100, 20_000, 10**6])
def test_flaw_the_printed_buffer_leaves_the_batch_at_b_max_whatever_the_memory(
    kv_tokens: int,
) -> None:
    small = busy(engine=engine(kv_tokens=kv_tokens))
    assert algorithm(l0="printed").batch(small, MIXED, 0) == B_MAX


def test_flaw_the_printed_buffer_grows_back_to_b_max_after_lengths_doubled() -> None:
    memory = algorithm(l0="printed", l0_period_s=10)
    longer = moments_of([(150, 150), (250, 250)])
    assert memory.batch(busy(), MIXED, 0) == B_MAX
    # Within the period: (theta sigma_S + mu_S) / m' = (2323.6 + 51200) / 400.
    assert memory.batch(busy(), longer, 1) == 133
    # After it: b + theta s sqrt(b) / m', for ever.
    later = [memory.batch(busy(), longer, 10 * k) for k in range(1, 5)]
    assert later == [137, 141, 145, 149]
    assert 149 * 400 > 20_000 * 2.9  # three times the memory there is


def test_live_is_the_authors_share_of_memory_over_what_a_running_request_holds() -> None:
    holding = busy(decoding=50, kv_used_tokens=8000)  # 160 tokens each
    assert algorithm(memory="live").batch(holding, NOTHING, 0) == 118
    assert algorithm(memory="live", units="blocks").batch(holding, NOTHING, 0) == 118
    assert algorithm(memory="live", live_factor=0.5).batch(holding, NOTHING, 0) == 62


def test_live_holds_while_no_memory_is_in_use() -> None:
    assert algorithm(memory="live").batch(busy(kv_used_tokens=0), NOTHING, 0) == B_MAX


def test_lengths_of_nothing_but_empty_requests_change_nothing() -> None:
    assert algorithm(memory="exact").batch(busy(), moments_of([(0, 0)]), 0) == B_MAX
