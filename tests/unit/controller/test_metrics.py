"""The list of metrics: Prometheus' rules, the docs, and the code that exports them."""

import ast
import re
from pathlib import Path

import pytest

from controller.metrics import LABELS, METRICS, Metric
from serve_app import scaling_export

ROOT = Path(__file__).parents[3]
# What Ray makes metrics of, and the modules of ours that do.
CLASSES = {"Counter": "counter", "Gauge": "gauge", "Histogram": "histogram"}
ROUTER = "serve_app/routing/router.py"
BY_VALUE = {ROUTER, "serve_app/scaling_export.py"}  # they travel to other processes, alone


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


def made() -> dict[str, list[ast.Call]]:
    """Where Ray's classes of metrics are called, file by file."""
    found: dict[str, list[ast.Call]] = {}
    for room in ("controller", "replicas", "serve_app"):
        for path in (ROOT / room).rglob("*.py"):
            tree = ast.parse(path.read_text())
            if {"ray.util.metrics", "ray.serve.metrics"} & modules(tree):
                calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
                named = [n for n in calls if isinstance(n.func, ast.Name) and n.func.id in CLASSES]
                found[path.relative_to(ROOT).as_posix()] = named
    return found


def modules(tree: ast.AST) -> set[str | None]:
    """Those that something is imported from."""
    return {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}


def test_whatever_is_exported_is_made_from_the_list() -> None:
    calls = made()
    assert set(calls) == {
        "controller/fleet/actor.py",
        "replicas/server/metrics.py",
        "replicas/server/pd_server.py",
        "serve_app/ingress.py",
        *BY_VALUE,
    }
    for path in set(calls) - BY_VALUE:
        for call in calls[path]:
            (argument,) = call.args
            assert isinstance(argument, ast.Starred)
            assert ast.unparse(argument).endswith(".args")


def test_the_router_exports_what_the_list_says() -> None:
    (call,) = made()[ROUTER]
    name, about, labels = (ast.literal_eval(argument) for argument in call.args)
    (metric,) = (one for one in METRICS if one.by == "router")
    assert (name, about) == (metric.name, metric.about)
    assert labels == (*metric.labels, *LABELS["router"])


def test_autoscaling_exports_what_the_list_says() -> None:
    ours = {one.name: one.about for one in METRICS if one.by == "autoscaling"}
    assert ours == scaling_export.ABOUT
    assert LABELS["autoscaling"] == scaling_export.TAGS
