"""Bars of requests on rows, for the console."""

from replicas.engine.timeline import MOST_BARS, Timeline


def test_nothing_grows_where_nobody_asks() -> None:
    timeline = Timeline()
    for number in range(MOST_BARS + 10):
        timeline.enter("a", 0, "decode", number)
        timeline.leave("a", number + 0.5)
    closed = timeline.drain(1e9)["closed"]
    assert (len(closed), closed[0][4]) == (MOST_BARS, 10)
