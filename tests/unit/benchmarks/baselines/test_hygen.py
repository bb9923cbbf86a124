"""HyGen on small numbers: online requests first, offline ones in what the budget leaves."""

from dataclasses import replace

import numpy as np

from benchmarks.baselines.hygen import Hygen
from benchmarks.baselines.options import HygenOptions
from benchmarks.baselines.rival import Columns, Moves
from tests.rivals import Case, decode, known, prefill, seen


def decided(
    running: list[Case], waiting: list[Case], online: str, queued: str = "", budget_ms: float = 20.0
) -> Moves:
    """What is decided for these requests, of which those marked ``+`` are online.

    A step takes 10 ms, 0.1 ms a decode, 0.05 ms a prompt token: 20 ms are 100 decodes.
    """
    shown = seen(running, waiting)

    def marked(some: Columns, marks: str) -> Columns:
        return replace(some, itl_s=np.array([0.05 if m == "+" else np.inf for m in marks]))

    shown = replace(
        shown,
        running=marked(shown.running, online),
        first_waiting=lambda n: marked(seen(waiting, waiting[:n]).first_waiting(n), queued[:n]),
    )
    return Hygen(HygenOptions(budget_ms=budget_ms), known()).decide(shown)


def test_offline_decodes_are_as_many_as_the_budget_leaves() -> None:
    # 12 ms are 20 decodes, of which 5 are online.
    moves = decided([decode()] * 35, [], "-" * 30 + "+" * 5, budget_ms=12.0)
    assert moves.running is not None
    assert list(moves.running) == [*range(30, 35), *range(15)]


def test_online_prompts_take_all_that_is_left_before_any_offline_request() -> None:
    moves = decided([decode(), decode(), prefill(900)], [prefill(500)] * 2, "+-+", "+-")
    # One online decode: 9.9 ms are 198 prompt tokens, and no offline decode fits any more.
    assert (moves.running, moves.budget, moves.starts) == ([0, 2], 1 + 198, 1)
    short = decided([decode(), decode(), prefill(100)], [prefill(50)], "+-+", "-")
    assert (short.running, short.budget, short.starts) == ([0, 1, 2], 2 + 100, 0)


def test_offline_prompts_take_what_no_online_one_wants() -> None:
    moves = decided([decode(), prefill(100)], [prefill(500)] * 3, "+-", "---")
    assert (moves.running, moves.budget) == ([0, 1], 1 + 198)
    assert moves.starts == 3
    full = decided([decode(), prefill(500)], [prefill(500)] * 3, "+-", "---")
    assert (full.running, full.starts) == ([0, 1], 0)


def test_an_online_prompt_gets_on_whatever_the_budget_is() -> None:
    moves = decided([decode(), prefill(900)], [], "++", budget_ms=5.0)
    assert (moves.running, moves.budget) == ([0, 1], 1 + 16)
