"""``python -m tools.dashboard``: the Grafana dashboard of k8s/components/monitoring, from here.

Written here, not in Grafana, so that every query takes its metrics from ``controller.metrics``.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controller import metrics
from tools.panels import ROWS, Panel

PATH = Path(__file__).parents[1] / "k8s" / "components" / "monitoring" / "dashboard.json"
WIDTH, HEIGHT, ACROSS = 8, 8, 3


def dashboard() -> dict[str, Any]:
    """What Grafana imports (from version 9 on)."""
    return {
        "title": "Brimful",
        "uid": "brimful",
        "tags": ["brimful", "ray", "vllm"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), *map(_variable, ("application", "deployment"))]},
        "panels": list(_panels()),
    }


def _source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "type": "datasource",
        "query": "prometheus",
        "label": "Prometheus",
    }


def _variable(label: str) -> dict[str, Any]:
    series = metrics.MAX_RUNNING.exported
    chosen = '{application=~"$application"}' if label == "deployment" else ""
    return {
        "name": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": f"label_values({series}{chosen}, {label})",
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for title, panels in ROWS.items():
        number += 1
        place = {"x": 0, "y": top, "w": WIDTH * ACROSS, "h": 1}
        yield {"id": number, "type": "row", "title": title, "gridPos": place, "panels": []}
        top += 1
        for index, panel in enumerate(panels):
            number += 1
            row, column = divmod(index, ACROSS)
            place = {"x": column * WIDTH, "y": top + row * HEIGHT, "w": WIDTH, "h": HEIGHT}
            yield _panel(panel, number, place)
        top += -(-len(panels) // ACROSS) * HEIGHT


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    bounds = {"min": 0} if panel.most is None else {"min": 0, "max": panel.most}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, **bounds}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": text, "legendFormat": name}
            for index, (text, name) in enumerate(panel.queries)
        ],
    }


def text() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    PATH.write_text(text())
    print(f"wrote {PATH}", file=sys.stderr)
