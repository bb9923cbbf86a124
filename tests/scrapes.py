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
SIZED = {metrics.LATE_ANYWAY}  # where steps are sized under an SLA between tokens
# Counters that are not there until it happens for the first time.
SELDOM = {
    metrics.PREEMPTIONS,
    metrics.OWN_ERRORS,
    metrics.LATE,
    metrics.STALLS,
    metrics.LATE_FIRST_TOKENS,
    metrics.REFUSED_REPORTS,
}
SCALING = {one for one in METRICS if one.by == "autoscaling"}
AUTO = {metrics.AUTO_MODEL}  # of an ingress in front of several models
APART = {metrics.PREFILLS, metrics.REMOTE_PREFILL}  # of decode replicas with prefill replicas
BATCHES = {one for one in METRICS if one.by == "batches"}
ALWAYS = (
    set(METRICS) - ADMISSION - MODEL - ROUTED - SIZED - SELDOM - SCALING - APART - AUTO - BATCHES
)


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
            if of_ours(labels) != {*known[name].labels, *LABELS[known[name].by]}:
                problems.append(f"{name}: {sorted(of_ours(labels))}")
    return sorted(set(problems))


def of_ours(labels: dict[str, str]) -> set[str]:
    """The labels without Ray's labels of every metric: in capitals, or its exporter's."""
    return {one for one in labels if one == one.lower() and not one.startswith("otel_")}
