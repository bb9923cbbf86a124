"""What a scrape of a running stack must hold: of each kind of application, and never."""

from prometheus_client.parser import text_string_to_metric_families

from controller import metrics
from controller.metrics import LABELS, METRICS, Metric

ADMISSION = {
    metrics.LET_IN,
    metrics.STARTED,
    metrics.REFUSED,
    metrics.QUEUED,
    metrics.WAIT_ERROR,
}
MODEL = {metrics.STEP, metrics.PREDICTED_STEP, metrics.STEP_ERROR}
ROUTED = {metrics.ROUTED}
# Counters that are not there until it happens for the first time.
SELDOM = {
    metrics.PREEMPTIONS,
    metrics.LATE,
    metrics.LATE_FIRST_TOKENS,
    metrics.REFUSED_REPORTS,
}
ALWAYS = set(METRICS) - ADMISSION - MODEL - ROUTED - SELDOM


def scraped(text: str) -> dict[str, list[dict[str, str]]]:
    """The labels of every sample of ours, by the name of its metric."""
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("ray_brimful_"):
                found.setdefault(sample.name, []).append(sample.labels)
    return found


def missing(text: str, wanted: set[Metric]) -> set[str]:
    """Those of ``wanted`` that the scrape does not have."""
    return {one.exported for one in wanted} - scraped(text).keys()


def wrong(text: str) -> list[str]:
    """Samples that are not by the list: unknown names, other labels than theirs."""
    known = {one.exported: one for one in METRICS}
    problems = []
    for name, samples in scraped(text).items():
        for labels in samples:
            if name not in known:
                problems.append(name)
                continue
            ours = {label for label in labels if label == label.lower()}  # Ray's own are CamelCase
            if ours != {*known[name].labels, *LABELS[known[name].by]}:
                problems.append(f"{name}: {sorted(ours)}")
    return sorted(set(problems))
