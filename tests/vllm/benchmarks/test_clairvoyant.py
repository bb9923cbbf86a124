"""The scheduler that knows all lengths: when memory is full."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.virtual.clairvoyant import first_overflow


def held_at(step: int, held: list[int], first: list[int], last: list[int]) -> int:
    """Tokens that they hold in this step."""
    rows = zip(held, first, last, strict=True)
    return sum(h + max(step - f, 0) for h, f, end in rows if step <= end)


def found(held: list[int], first: list[int], last: list[int], kv_tokens: int) -> int:
    return first_overflow(np.array(held), np.array(first), np.array(last), kv_tokens, 1)


def test_who_begins_later_holds_its_prompt_until_then() -> None:
    # 150, one more in each step up to the fifth, then two: 161 in step 8, 83 and on without one.
    assert found([100, 50], [0, 5], [8, 40], 160) == 8
    assert found([100, 50], [0, 5], [8, 60], 100) == 0


@given(
    rows=st.lists(st.tuples(st.integers(1, 300), st.integers(0, 80)), min_size=1, max_size=8),
    frac=st.floats(0, 1),
)
def test_it_is_the_step_that_brute_force_finds(rows: list[tuple[int, int]], frac: float) -> None:
    held, last = [h for h, _ in rows], [end for _, end in rows]
    first = [0] * len(rows)
    tokens = [held_at(step, held, first, last) for step in range(max(last) + 1)]
    at_ends = [tokens[end] for end in set(last)]
    kv_tokens = int(frac * (max(at_ends) - 1))
    over = next(step for step, held_then in enumerate(tokens) if held_then > kv_tokens)
    step = found(held, first, last, kv_tokens)
    # It fills memory in that step, or in the one before to the last token.
    assert step in (over, over - 1)
    assert step == over or tokens[step] <= kv_tokens
