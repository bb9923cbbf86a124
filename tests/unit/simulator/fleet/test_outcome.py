"""Which requests met the SLA."""

import numpy as np

from controller.config import Sla
from simulator.fleet.outcome import inside_sla

NEVER = float("nan")


def inside(sla: Sla, *each: tuple[float, float, int]) -> list[bool]:
    """Requests that came at 0 s, from (first token at, last one at, tokens)."""
    first_s, end_s, output = (np.array(column) for column in zip(*each, strict=True))
    return inside_sla(np.zeros(len(each)), first_s, end_s, output, sla).tolist()


def test_an_answer_that_was_lost_did_not_meet_an_sla_of_the_first_token_alone() -> None:
    requests = (0.5, 3.0, 50), (0.5, NEVER, 50), (1.5, 3.0, 50), (NEVER, NEVER, 50)
    assert inside(Sla(ttft_ms=1000), *requests) == [True, False, False, False]


def test_between_n_tokens_are_n_less_one_times() -> None:
    # Two tokens 60 ms apart, five with 50 ms between them, and one alone.
    requests = (0.5, 0.56, 2), (0.5, 0.7, 5), (0.5, 0.76, 5), (0.5, 0.5, 1)
    assert inside(Sla(itl_ms=50), *requests) == [False, True, False, True]
