"""Pages that follow the code say what it has."""

from controller.metrics import METRICS
from tools import configuration


def test_the_page_of_keys_is_what_the_command_writes() -> None:
    assert configuration.PAGE.read_text() == configuration.page(), "python -m tools.configuration"


def test_the_page_of_metrics_has_every_metric_as_it_is_exported() -> None:
    page = (configuration.ROOT / "docs" / "metrics.md").read_text()
    told = {line for line in page.splitlines() if line.startswith("| `ray_brimful_")}
    assert told == {
        f"| `{m.exported}` | {m.kind} | {m.unit}"
        f" | {', '.join(f'`{label}`' for label in m.labels) or '-'} | {m.about} |"
        for m in METRICS
    }
