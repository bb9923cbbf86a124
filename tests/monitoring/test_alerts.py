"""The alert rules: each is tested by Prometheus' own tool, and names metrics that exist."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring.shipped import KNOWN, PLAIN, SELECTOR

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "k8s" / "components" / "monitoring"
TESTS = Path(__file__).parent / "alerts_test.yaml"


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def rules() -> list[dict[str, Any]]:
    return [rule for group in load(PLAIN)["groups"] for rule in group["rules"]]


def test_the_operators_rules_are_the_plain_ones() -> None:
    assert load(MONITORING / "prometheusrule.yaml")["spec"] == load(PLAIN)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_a_rule_names_only_metrics_that_exist_and_says_what_to_do(rule: dict[str, Any]) -> None:
    names = {name for name, _ in SELECTOR.findall(rule["expr"])}
    assert names
    assert names <= KNOWN.keys()
    assert set(rule["annotations"]) == {"summary", "description"}
    assert rule["labels"]["severity"] in ("page", "ticket", "info")


def test_every_alert_is_tested_to_fire() -> None:
    fired = {
        case["alertname"]
        for test in load(TESTS)["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert fired == {rule["alert"] for rule in rules()}


@pytest.mark.prometheus
def test_prometheus_own_tool_passes_them(tmp_path: Path) -> None:
    for path in (PLAIN, TESTS):
        shutil.copy(path, tmp_path)
    for command in (["check", "rules", PLAIN.name], ["test", "rules", TESTS.name]):
        done = subprocess.run(
            ["promtool", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
