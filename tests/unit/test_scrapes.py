"""The check of a scrape finds what is missing and what is wrong."""

from controller.metrics import MAX_RUNNING, METRICS, ROUTED
from tests import scrapes

TEXT = """\
# HELP ray_brimful_max_running The cap on running requests.
# TYPE ray_brimful_max_running gauge
ray_brimful_max_running{application="a",deployment="d",replica="r",WorkerId="w",otel_scope=""} 4.0
# TYPE ray_brimful_routed_total counter
ray_brimful_routed_total{application="a",outcome="room"} 7.0
ray_other{x="y"} 1.0
"""


def test_what_is_missing_is_named_and_what_is_there_is_not() -> None:
    assert scrapes.missing(TEXT, {MAX_RUNNING, ROUTED}) == set()
    assert scrapes.missing(TEXT, set(METRICS)) >= {
        "ray_brimful_running",
        "ray_brimful_tokens_total",
    }
    assert scrapes.wrong(TEXT) == []


def test_what_nobody_listed_is_wrong_and_so_are_other_labels() -> None:
    more = 'ray_brimful_new{application="a"} 1.0\nray_brimful_running{application="a"} 1.0\n'
    assert scrapes.wrong(TEXT + more) == ["ray_brimful_new", "ray_brimful_running: ['application']"]


def test_some_test_with_a_cluster_looks_for_each_but_those_that_seldom_happen() -> None:
    groups = (
        scrapes.ALWAYS,
        scrapes.ADMISSION,
        scrapes.MODEL,
        scrapes.ROUTED,
        scrapes.SIZED,
        scrapes.SELDOM,
        scrapes.APART,
        scrapes.AUTO,
    )
    groups += (scrapes.SCALING, scrapes.BATCHES)
    assert set().union(*groups) == set(METRICS)
    assert sum(map(len, groups)) == len(METRICS)
