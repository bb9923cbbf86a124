"""What is known of output lengths, when it is brought up to date, and from whom."""

import numpy as np
import pytest

from controller.models.output_lengths import REFRESH_STEPS, OutputLengths
from controller.models.survival import ENDS_KEPT, OutputCounts, length_bin
from tests.builders import outlasting

ONE = np.array([10])


def counts(length: int, n: int = 500) -> tuple[float, ...]:
    kept = OutputCounts()
    for _ in range(n):
        kept.add(length)
    return tuple(map(float, kept.counts))


def ended(lengths: OutputLengths, length: int, n: int) -> None:
    for _ in range(n):
        lengths.finished(length)


def updated(lengths: OutputLengths, steps: range) -> list[int]:
    """At which of the steps what is known was brought up to date."""
    seen, last = [], lengths.survival(steps.start, ONE)
    for step in steps:
        if (now := lengths.survival(step, ONE)) is not last:
            seen.append(step)
            last = now
    return seen


def test_lengths_are_brought_up_to_date_every_8_steps() -> None:
    one = OutputLengths()
    assert updated(one, range(21)) == [8, 16]
    ended(one, 50, 100)
    assert updated(one, range(21, 41)) == [24, 32, 40]


@pytest.mark.parametrize("seed", range(4))
def test_of_many_that_begin_together_about_as_many_end_as_is_expected(seed: int) -> None:
    """Counted by whole bins, five times as many were expected in some 8 steps."""
    one, answers = OutputLengths(), np.random.default_rng(seed).lognormal(5, 0.6, 200).astype(int)
    expected = []
    for step in range(0, int(answers.max()) + 1, REFRESH_STEPS):
        for length in answers[(answers <= step) & (answers > step - REFRESH_STEPS)]:
            one.finished(int(length))
        here = int((answers > step).sum())
        alive, _ = one.survival(step, np.full(here, step)).by_token(step + REFRESH_STEPS)
        expected.append(here * (1 - alive[step + REFRESH_STEPS] / alive[step]))
    assert max(expected) < 20
    assert 100 < sum(expected) < 300


def test_answers_that_outlive_all_known_ones_show_though_none_ends() -> None:
    one = OutputLengths()
    ended(one, 60, 400)
    before = outlasting(one.survival(0, np.array([], dtype=np.int64)), 100)
    assert outlasting(one.survival(8, np.full(20, 120)), 100) > 2 * before


def test_lengths_are_kept_for_the_next_update_but_no_more_than_are_remembered() -> None:
    one = OutputLengths()
    for _ in range(3 * ENDS_KEPT):
        one.finished(10)
        one.aborted(5)
    assert (len(one._finished), len(one._aborted)) == (ENDS_KEPT, ENDS_KEPT)
    one.finished(300)
    one.survival(0, ONE)
    assert one.pooled().ended.sum() == ENDS_KEPT  # the newest of them
    assert (len(one._finished), len(one._aborted)) == (0, 0)


def test_an_end_without_a_token_counts_as_one() -> None:
    none, one = OutputLengths(), OutputLengths()
    none.finished(0)
    one.finished(1)
    assert outlasting(none.survival(0, ONE), 1) == outlasting(one.survival(0, ONE), 1)
    two = OutputLengths()
    two.finished(2)
    assert outlasting(two.survival(0, ONE), 1) > outlasting(one.survival(0, ONE), 1)


def test_requests_that_go_on_or_were_aborted_count_for_long_answers() -> None:
    def at_100(outputs: list[int], aborted: int) -> float:
        one = OutputLengths()
        ended(one, 50, 20)
        for _ in range(aborted):
            one.aborted(300)
        return outlasting(one.survival(0, np.array(outputs, dtype=np.int64)), 100)

    assert at_100([], 0) < at_100([300] * 5, 0) == at_100([], 5)


def test_the_running_and_the_waiting_count_alike() -> None:
    halves, whole = OutputLengths(), OutputLengths()
    first, second = np.array([3, 70]), np.array([200])
    found = outlasting(halves.survival(0, first, second), 100)
    assert found == outlasting(whole.survival(0, np.array([200, 3, 70])), 100)


@pytest.mark.parametrize(
    ("group", "own", "pooled", "of_group"),
    [
        (None, 0, 0, 0),  # nobody knows anything before the first end
        (40, 0, 40, 40),  # of a group that knows little no more is taken than it knows
        (1000, 0, ENDS_KEPT, ENDS_KEPT),
        (1000, 200, ENDS_KEPT, ENDS_KEPT - 200),
        (1000, ENDS_KEPT - 1, ENDS_KEPT, 1),
        (500, ENDS_KEPT, ENDS_KEPT, 0),  # who knows enough needs no group
    ],
)
def test_the_groups_lengths_fill_up_what_a_newcomer_lacks(group, own, pooled, of_group):
    pool = OutputLengths()
    pool.receive(None if group is None else counts(16, group))
    for _ in range(own):
        pool.finished(50)
    pool.survival(0, np.array([], dtype=np.int64))
    found = pool.pooled().ended
    assert pool.ends == own
    assert found.sum() == pytest.approx(pooled)
    assert found[length_bin(16)] == pytest.approx(of_group)


def test_the_groups_lengths_of_before_a_change_do_not_come_back() -> None:
    one = OutputLengths()
    one.receive(counts(16))
    assert one._group is not None
    step = 0
    for length in (16, 400):
        for _ in range(30):
            ended(one, length, 8)
            step += 8
            one.survival(step, np.array([], dtype=np.int64))
    assert one._group is None
    one.receive(counts(16))
    assert one._group is None
