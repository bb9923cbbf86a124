"""The list of metrics: Prometheus' rules, and what autoscaling exports by value."""

import re

import pytest

from controller.metrics import LABELS, METRICS, Metric
from serve_app import scaling_export


@pytest.mark.parametrize("metric", METRICS, ids=lambda one: one.name)
def test_names_are_by_prometheus_rules(metric: Metric) -> None:
    assert re.fullmatch(r"brimful_[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert ("_seconds" in metric.name) == (metric.unit == "seconds" or "le" in metric.labels)
    assert metric.name.endswith("_ratio") == (metric.unit == "0 to 1")
    assert not {"_ms", "percent"} & set(re.findall("_ms|percent", metric.name))
    assert not set(metric.labels) & set(LABELS[metric.by])


def test_every_name_is_there_once() -> None:
    assert len({one.name for one in METRICS}) == len(METRICS)


def test_autoscaling_exports_what_the_list_says() -> None:
    ours = {one.name: one.about for one in METRICS if one.by == "autoscaling"}
    assert ours == scaling_export.ABOUT
    assert LABELS["autoscaling"] == scaling_export.TAGS
