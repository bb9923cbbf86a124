"""What is known of output lengths, when it is brought up to date, and from whom."""

import numpy as np
import pytest

from controller.models.output_lengths import REFRESH_STEPS, OutputLengths, PooledLengths
from controller.models.survival import BINS, ENDS_KEPT, OutputCounts
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
    assert one._pool.pooled().ended.sum() == ENDS_KEPT  # the newest of them
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


def test_the_groups_lengths_fill_up_what_a_newcomer_lacks() -> None:
    pool = PooledLengths()
    pool.receive(counts(16, 1000))
    assert pool.pooled().ended.sum() == pytest.approx(ENDS_KEPT)
    pool.update([50] * 200, [], np.array([], dtype=np.int64), None)
    pooled = pool.pooled()
    assert pool._own.ends == 200
    assert pooled.ended.sum() == pytest.approx(ENDS_KEPT)
    assert pooled.ended.max() == pytest.approx(300)


def test_the_last_end_that_is_missing_comes_from_the_group() -> None:
    pool = PooledLengths()
    pool.receive(counts(16, 1000))
    pool.update([50] * (ENDS_KEPT - 1), [], np.array([], dtype=np.int64), None)
    assert pool.pooled().ended.sum() == pytest.approx(ENDS_KEPT)


def test_of_a_group_that_knows_little_no_more_is_taken_than_it_knows() -> None:
    pool = PooledLengths()
    pool.receive(counts(16, 40))
    assert pool.pooled().ended.sum() == pytest.approx(40)


def test_who_knows_enough_needs_no_group() -> None:
    pool = PooledLengths()
    pool.receive(counts(16))
    pool.update([50] * ENDS_KEPT, [], np.array([], dtype=np.int64), None)
    assert np.count_nonzero(pool.pooled().ended) == 1
    assert pool.pooled().ended.sum() == ENDS_KEPT


def test_nobody_knows_anything_before_the_first_end() -> None:
    pool = PooledLengths()
    pool.receive(None)
    assert pool.pooled().ended.tolist() == [0.0] * BINS


def test_the_groups_lengths_of_before_a_change_do_not_come_back() -> None:
    one = OutputLengths()
    one.receive(counts(16))
    assert one._pool._group is not None
    step = 0
    for length in (16, 400):
        for _ in range(30):
            ended(one, length, 8)
            step += 8
            one.survival(step, np.array([], dtype=np.int64))
    assert one._pool._group is None
    one.receive(counts(16))
    assert one._pool._group is None
