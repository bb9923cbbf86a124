"""What is shipped to watch a fleet by: queries, rules, and the names they may use."""

import re
from pathlib import Path
from typing import Any

from controller.metrics import LABELS, METRICS
from tools.dashboard import dashboard

PLAIN = Path(__file__).parents[2] / "docs" / "examples" / "prometheus-alerts.yaml"
OF_RAY: dict[str, set[str]] = {  # of each node, by NVML
    f"ray_node_{name}": set() for name in ("gpus_utilization", "gram_used", "gram_available")
}
KNOWN = OF_RAY | {one.exported: {*one.labels, *LABELS[one.by]} for one in METRICS}
# A metric and, in braces, the labels by which its series are chosen.
SELECTOR = re.compile(r"(ray_\w+)(?:\{([^}]*)\})?")


def panels() -> list[dict[str, Any]]:
    return [one for one in dashboard()["panels"] if one["type"] != "row"]


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def plain(query: str, chosen: str = "a|b") -> str:
    """The query as Grafana sends it, with these applications and deployments chosen."""
    values = {"$application": chosen, "$deployment": chosen, "$__rate_interval": "1m"}
    for name, value in values.items():
        query = query.replace(name, value)
    assert "$" not in query
    return query
