"""The highest and the lowest of the recent past."""

from serve_app.scaling.recent import Recent


def test_the_highest_and_lowest_since_a_time() -> None:
    recent = Recent()
    for at_s, value in ((0.0, 9.0), (10.0, 3.0), (20.0, 5.0)):
        recent.add(at_s, value, keep_s=100)
    assert (recent.highest(0), recent.lowest(0)) == (9, 3)
    assert (recent.highest(1), recent.lowest(15)) == (5, 5)
    assert (recent.highest(30), recent.lowest(30)) == (5, 5)


def test_what_is_old_is_forgotten() -> None:
    recent = Recent()
    recent.add(0.0, 9.0, keep_s=10)
    recent.add(11.0, 1.0, keep_s=10)
    assert recent.highest(0) == 1


def test_a_clock_that_went_back_loses_what_lies_ahead() -> None:
    recent = Recent()
    for at_s, value in ((0.0, 4.0), (100.0, 9.0), (50.0, 1.0)):
        recent.add(at_s, value, keep_s=1000)
    assert recent.highest(0) == 4


def test_whether_the_past_reaches_back_so_far() -> None:
    recent = Recent()
    assert not recent.spans(5)
    recent.add(10.0, 1.0, keep_s=10)
    assert (recent.spans(9), recent.spans(10)) == (False, True)


def test_the_value_that_held_at_a_time() -> None:
    recent = Recent()
    for at_s, value in ((10.0, 4.0), (20.0, 9.0)):
        recent.add(at_s, value, keep_s=100)
    assert [recent.at(at_s) for at_s in (5.0, 10.0, 19.0, 20.0, 99.0)] == [4, 4, 4, 9, 9]
