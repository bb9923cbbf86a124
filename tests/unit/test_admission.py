"""Who may start: what fits, theta, pacing."""

import pytest

from controller.models.admission import COOL_STEPS, THETA_RANGE, THETA_START, THETA_STEP, Admission
from controller.models.lookahead import LiveRequests, live_requests


def requests(n: int, prompt: int = 100, outputs: int = 0, most: int = 4000) -> LiveRequests:
    """n alike; their prompts are computed where they have said something."""
    computed = prompt + outputs if outputs else 0
    return live_requests([computed] * n, [prompt] * n, [outputs] * n, [most] * n)


def knowing(length: int, kv_tokens: int, n: int = 500) -> Admission:
    """An engine that has seen n answers of one length from their beginning."""
    admission = Admission(kv_tokens, 16, 0.02)
    for _ in range(n):
        admission.finished(length)
    return admission


def test_of_a_known_length_as_many_start_as_fit_at_their_end() -> None:
    # 100 in and 128 out: 228 tokens and half a block each at the end; 50 of them in 11,800.
    fitting, _ = knowing(128, 11_800).fitting(requests(0), requests(64), 0)
    assert 46 <= fitting <= 52


def test_those_who_end_soon_make_room_for_who_peaks_later() -> None:
    # 40 that end in a few steps hold 9,000 tokens now and nothing when the new ones peak.
    admission = knowing(128, 11_800)
    fitting, _ = admission.fitting(requests(40, outputs=120), requests(20), 9_000)
    assert fitting >= 15


def test_a_memory_that_holds_all_needs_no_forecast() -> None:
    fitting, together = knowing(128, 10**7).fitting(requests(10), requests(64), 0)
    assert (fitting, together) == (64, None)


def test_what_requests_may_say_at_most_can_be_enough_to_know() -> None:
    # 74 requests of 100 tokens that may say 20 more: 9,000 tokens and a block each, at the most.
    newcomer = Admission(11_000, 16, 0.02)
    short = requests(10, outputs=1, most=21), requests(64, most=20)
    assert newcomer.fitting(*short, 1_010) == (64, None)
    fitting, together = newcomer.fitting(requests(10, outputs=1), requests(64), 1_010)
    assert fitting < 64
    assert together is not None


def test_who_lost_its_blocks_may_be_older_than_all_that_run() -> None:
    admission = knowing(100, 2_000)
    admission.fitting(requests(2, outputs=5), requests(20), 300)
    waiting = live_requests([0] * 21, [50] * 21, [3000] + [0] * 20, [4000] * 21)
    fitting, _ = admission.fitting(requests(2, outputs=5), waiting, 300)
    assert fitting == 0  # 3,050 tokens are more than there are
    fitting, _ = admission.fitting(requests(0), waiting, 0)
    assert fitting == 0


def test_more_memory_admits_more() -> None:
    # Five run and hold 500; each one holds 300 and a block at its end, newcomers like them.
    def fitting(kv_tokens: int) -> int:
        return knowing(200, kv_tokens).fitting(requests(5), requests(60), 500)[0]

    counts = [fitting(kv) for kv in range(1_000, 24_000, 500)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 60)
    assert len(set(counts)) > 30  # a request or two for every 500 tokens
    assert fitting(9_000) == pytest.approx(9_000 / 316 - 5, abs=2)


def test_a_burst_of_preemptions_moves_theta_once() -> None:
    admission = Admission(1000, 16, 0.02)
    for _ in range(20):
        admission.preempted()
    assert admission.theta == pytest.approx(THETA_START + THETA_STEP)
    for _ in range(COOL_STEPS):
        admission.stepped()
    admission.preempted()
    assert admission.theta == pytest.approx(THETA_START + 2 * THETA_STEP)


def test_theta_rests_where_the_accepted_share_is_preempted() -> None:
    admission = Admission(1000, 16, 0.02)
    for _ in range(50):  # one in fifty: 0.02
        for _ in range(50):
            admission.stepped()
            admission.finished(10)
        admission.preempted()
    assert admission.theta == pytest.approx(THETA_START, abs=THETA_STEP)


def test_theta_keeps_its_range() -> None:
    admission = Admission(1000, 16, 0.02)
    for _ in range(2000):
        admission.finished(10)
    assert admission.theta == THETA_RANGE[0]
    for _ in range(2000):
        for _ in range(COOL_STEPS):
            admission.stepped()
        admission.preempted()
    assert admission.theta == THETA_RANGE[1]


def test_batches_in_lockstep_are_spread_out_and_others_are_not() -> None:
    admission = knowing(400, 60_000)
    young = requests(60, prompt=200, outputs=1)
    admission.fitting(young, requests(20, prompt=200), 12_000)
    started = [admission.paced(10, young, 1000) for _ in range(50)]
    assert 0 < sum(started) < 50
    assert admission.paced(10, young, waiting=20) == 10  # nobody will miss the room


def test_the_groups_lengths_stand_in_for_a_newcomers() -> None:
    known, newcomer = knowing(128, 11_800), Admission(11_800, 16, 0.02)
    settled, _ = known.fitting(requests(0), requests(64), 0)
    cold, _ = newcomer.fitting(requests(0), requests(64), 0)
    newcomer = Admission(11_800, 16, 0.02)
    newcomer.hear(tuple(map(float, known._history.seen.ended)))
    newcomer.hear(None)  # nobody knows better now, so what was heard stays
    warm, _ = newcomer.fitting(requests(0), requests(64), 0)
    assert warm == pytest.approx(settled, abs=4)
    assert cold < warm
