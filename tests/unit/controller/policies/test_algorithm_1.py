"""Algorithm 1 (memory), line by line: one report in, one batch size out."""

from typing import Any

import pytest

from controller.config import PaperOptions
from controller.policies.paper import MemoryBatching
from controller.records import ReplicaReport
from tests.builders import engine, moments_of, report

B_MAX = 256
FIXED = moments_of([(100, 100)] * 4)  # m = 200, s = 0
MIXED = moments_of([(50, 50), (150, 150)])  # m = 200, s^2 = 2500 + 2500
NOTHING = moments_of([])
HOLDING = {"decoding": 50, "kv_used_tokens": 8000}


def algorithm(b_max: int = B_MAX, **options: Any) -> MemoryBatching:
    return MemoryBatching(PaperOptions(**options), 0.02, b_max)


def busy(decoding: int = 10, **overrides: Any) -> ReplicaReport:
    return report(decoding=decoding, running=decoding, prefilling=5, **overrides)


@pytest.mark.parametrize(
    ("options", "said", "lengths", "b"),
    [
        ({"memory": "exact"}, {}, NOTHING, B_MAX),  # b_0 holds while nothing finished
        ({"memory": "exact"}, {}, moments_of([(0, 0)]), B_MAX),  # nothing but empty requests
        ({"memory": "exact"}, {}, MIXED, 92),  # eq. 12
        # 120 run on: they drain to 100 (test_governor.py), no new one starts.
        ({"memory": "exact"}, {"decoding": 120}, FIXED, 100),
        ({"memory": "exact", "b_max": 64}, {}, FIXED, 64),
        ({"memory": "exact"}, {"engine": engine(kv_tokens=100)}, FIXED, 1),  # no memory for one
        # 1250 blocks over 200/16 + 0.5 = 13 blocks each: half an empty one per request.
        ({"memory": "exact", "units": "blocks"}, {}, FIXED, 96),
        # Eq. 14, with the deviation at the previous batch: L0 = theta sqrt(256 x 5000) = 2323.6.
        ({"l0": "buffer"}, {}, MIXED, 88),
        # The authors' share of memory over what a running request holds: 160 tokens each.
        ({"memory": "live"}, HOLDING, NOTHING, 118),
        ({"memory": "live", "units": "blocks"}, HOLDING, NOTHING, 118),
        ({"memory": "live"}, {"kv_used_tokens": 0}, NOTHING, B_MAX),  # no memory is in use
        # A flaw: the printed buffer leaves the batch at B_max whatever the memory.
        *(({"l0": "printed"}, {"engine": engine(kv_tokens=kv)}, MIXED, B_MAX)
          for kv in (100, 20_000, 10**6)),
    ],
)  # fmt: skip
def test_a_batch_by_one_report(options, said, lengths, b):
    assert algorithm(**options).batch(busy(**said), lengths, 0) == b


@pytest.mark.parametrize(("n_d", "n_p"), [(0, 5), (10, 0), (0, 0)])
def test_line_4_holds_the_batch_unless_requests_both_prefill_and_decode(n_d: int, n_p: int) -> None:
    memory = algorithm(memory="exact")
    assert memory.batch(busy(), FIXED, 0) == 100
    idle = report(decoding=n_d, prefilling=n_p, engine=engine(kv_tokens=1000))
    assert memory.batch(idle, FIXED, 1) == 100  # line 3: b_t <- b_{t-1}


def test_a_batch_for_which_there_is_no_memory_stays_one() -> None:
    memory, tiny = algorithm(l0="buffer"), busy(engine=engine(kv_tokens=100))
    assert [memory.batch(tiny, MIXED, 10.0 * k) for k in range(3)] == [1, 1, 1]


def test_line_1_is_computed_anew_once_a_period_and_the_mean_at_once() -> None:
    memory = algorithm(l0="buffer")
    longer = moments_of([(150, 150), (250, 250)])  # m = 400, the same deviation
    assert memory.batch(busy(), MIXED, 0) == 88
    assert memory.batch(busy(), longer, 9.9) == 44  # (20000 - 2323.6) / 400: old L0, new mean
    assert memory.batch(busy(), longer, 10.0) == 47  # L0 = theta sqrt(44 x 5000) = 963.3


def test_flaw_the_printed_buffer_grows_back_to_b_max_after_lengths_doubled() -> None:
    memory = algorithm(l0="printed")
    longer = moments_of([(150, 150), (250, 250)])
    assert memory.batch(busy(), MIXED, 0) == B_MAX
    # Within the period: (theta sigma_S + mu_S) / m' = (2323.6 + 51200) / 400.
    assert memory.batch(busy(), longer, 1) == 133
    # After it: b + theta s sqrt(b) / m', for ever.
    later = [memory.batch(busy(), longer, 10 * k) for k in range(1, 5)]
    assert later == [137, 141, 145, 149]
    assert 149 * 400 > 20_000 * 2.9  # three times the memory there is
