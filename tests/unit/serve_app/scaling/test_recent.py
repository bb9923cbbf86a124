"""The highest and the lowest of the recent past."""

from serve_app.scaling.recent import Recent


def test_a_clock_that_went_back_loses_what_lies_ahead() -> None:
    recent = Recent()
    for at_s, value in ((0.0, 4.0), (100.0, 9.0), (50.0, 1.0)):
        recent.add(at_s, value, keep_s=1000)
    assert recent.highest(0) == 4
