"""The check of a scrape finds what is missing and what is wrong."""

from controller.metrics import METRICS
from tests import scrapes


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
