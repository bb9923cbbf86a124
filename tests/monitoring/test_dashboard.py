"""The Grafana dashboard: it is what tools/dashboard.py makes, of metrics that exist."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from controller.metrics import METRICS
from tests.monitoring.shipped import KNOWN, SELECTOR, plain, queries
from tools.dashboard import PATH, dashboard, text
from tools.panels import CHOSEN


def test_the_dashboard_that_is_shipped_is_the_one_that_is_made() -> None:
    assert PATH.read_text() == text(), "python -m tools.dashboard"
    assert json.loads(PATH.read_text()) == dashboard()


@pytest.mark.parametrize("query", queries())
def test_a_query_names_only_metrics_and_labels_that_exist(query: str) -> None:
    found = SELECTOR.findall(query)
    assert found
    for name, chosen in found:
        assert name in KNOWN
        assert set(re.findall(r"(\w+)=", chosen)) <= KNOWN[name]


def test_whatever_a_replica_exports_goes_by_what_is_chosen_at_the_top() -> None:
    by_replicas = {one.exported for one in METRICS if one.by in ("replica", "autoscaling")}
    for query in queries():
        for name, chosen in SELECTOR.findall(query):
            assert (name not in by_replicas) or chosen.startswith(CHOSEN)


@pytest.mark.prometheus
def test_prometheus_reads_every_query(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:query:{number}", "expr": plain(query)}
        for number, query in enumerate(queries())
    ]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
