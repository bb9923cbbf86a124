"""SLOs-Serve: who is admitted, and who is served when. Steps: see ``seen.step_s``."""

import numpy as np

from benchmarks.baselines.options import SlosServeOptions
from benchmarks.baselines.slos_serve import SlosServe, Work, most_admitted
from tests.unit.benchmarks.baselines.seen import KNOWN, decode, prompt, seen

RATES = np.full(10, 100.0)  # prompt tokens/s


def new(name: str, due_s: float, left: int, memory: int = 1) -> Work:
    return Work(name, due_s, left, memory, new=True)


def test_as_many_as_can_be_served_are_admitted() -> None:
    work = [new("long", 1.0, 90), new("a", 1.0, 50), new("b", 1.0, 50)]
    assert most_admitted(work, RATES, 10, 100) == {"a", "b"}
    assert len(most_admitted(work, RATES, 1, 100)) == 1
    assert len(most_admitted(work, RATES, 10, 1)) == 1


def test_what_was_admitted_stays_and_others_go_without() -> None:
    kept = Work("kept", 2.0, 180, 1, new=False)
    assert most_admitted([kept, new("a", 1.0, 30), new("b", 2.0, 20)], RATES, 10, 100) == {
        "kept",
        "b",
    }


def test_a_step_lasts_an_itl_and_serves_the_admitted_first() -> None:
    rival = SlosServe(SlosServeOptions(slack="gaps"), KNOWN)
    # The first is late since it waits for 2 s: 399 tokens are left beside the decode.
    late, fresh = prompt(300, arrival_s=0.0), prompt(300, arrival_s=2.5)
    moves = rival.decide(seen([decode(3.0)], [late, fresh], now_s=3.0))
    assert (moves.budget, moves.waiting, moves.starts) == (400, [1, 0], 2)


def test_a_decode_that_is_an_itl_ahead_waits_its_turn() -> None:
    rival = SlosServe(SlosServeOptions(ttft_s=1.0), KNOWN)
    assert rival.decide(seen([decode(0.9, 1), decode(0.9, 40)], [])).running == [0]


def test_no_more_run_than_decodes_fit_into_an_itl() -> None:
    rival = SlosServe(SlosServeOptions(slack="gaps", margin=4.0), KNOWN)
    # Four times 10 ms leave 10 ms, for 25 decodes of 0.4 ms.
    running = [decode(1.0) for _ in range(25)]
    assert rival.decide(seen(running, [prompt(100)])).starts == 0
    assert rival.decide(seen(running[:20], [prompt(1) for _ in range(9)])).starts == 5
