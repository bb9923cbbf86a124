"""Contents of the Grafana dashboard: panels in rows, each query from ``controller.metrics``."""

from dataclasses import dataclass
from typing import Any

from controller import metrics
from controller.metrics import Metric

# The choices at the top of the page.
CHOSEN = 'application=~"$application", deployment=~"$deployment"'
MODEL, REPLICA = "application, deployment", "application, deployment, replica"


@dataclass(frozen=True, slots=True)
class Panel:
    """Args:
    queries: the text of each, and the legend of its lines.
    unit: as Grafana names it.
    """

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    most: float | None = None
    about: str = ""


def of(metric: Metric, *labels: str) -> str:
    """The chosen series of a metric."""
    return f"{metric.exported}{{{', '.join([CHOSEN, *labels])}}}"


def rate(metric: Metric, by: str, *labels: str) -> str:
    """Its increase per second, summed over all labels but ``by``."""
    return f"sum by ({by}) (rate({of(metric, *labels)}[$__rate_interval]))"


def share(part: Metric, whole: Metric, by: str) -> str:
    return f"{rate(part, by)} / {rate(whole, by)}"


def quantile(q: float, buckets: Metric) -> str:
    return f"histogram_quantile({q}, {rate(buckets, f'{MODEL}, le')})"


def sla(latency: str) -> tuple[str, str]:
    chosen = of(metrics.SLA, f'latency="{latency}"')
    return f"max by ({MODEL}) ({chosen})", "SLA {{deployment}}"


def held() -> tuple[str, str]:
    """The limit of steps, with which tokens leave the server inside the SLA."""
    whole, _ = sla("itl")
    return f"min by ({MODEL}) ({of(metrics.SLA_HELD)}) * {whole}", "steps held to {{deployment}}"


def _percentiles(title: str, buckets: Metric, latency: str) -> Panel:
    lines = [(quantile(q, buckets), f"p{q * 100:g} {{{{deployment}}}}") for q in (0.5, 0.99)]
    limits = (sla(latency), held()) if latency == "itl" else (sla(latency),)
    return Panel(title, (*lines, *limits), "s")


def _each(title: str, *lines: tuple[Metric, str], unit: str = "short", **more: Any) -> Panel:
    """One line for each replica and metric."""
    queries = ((of(metric), f"{name} {{{{replica}}}}".strip()) for metric, name in lines)
    return Panel(title, tuple(queries), unit, **more)


def _inside(late: Metric, counted: Metric, name: str) -> tuple[str, str]:
    return f"1 - {share(late, counted, MODEL)}", f"{name} {{{{deployment}}}}"


ROWS: dict[str, tuple[Panel, ...]] = {
    "Models": (
        Panel(
            "Inside the SLA",
            (
                _inside(metrics.LATE_TOKENS, metrics.TOKENS, "between tokens"),
                _inside(metrics.LATE_FIRST_TOKENS, metrics.FIRST_TOKENS, "first token"),
                (f"min by ({MODEL}) ({of(metrics.SLA_TARGET)})", "wanted {{deployment}}"),
                (
                    f"1 - max by ({MODEL}) ({of(metrics.LATE_ANYWAY)})",
                    "whatever the batch {{deployment}}",
                ),
            ),
            "percentunit",
            1,
        ),
        Panel(
            "Demand and capacity",
            (
                (f"sum by ({MODEL}) ({of(metrics.ARRIVAL_RATE)})", "demand {{deployment}}"),
                (f"sum by ({MODEL}) ({of(metrics.CAPACITY)})", "capacity {{deployment}}"),
            ),
            "reqps",
        ),
        Panel(
            "Replicas",
            (
                (f"count by ({MODEL}) ({of(metrics.RUNNING)})", "{{deployment}}"),
                (f"max by ({MODEL}) ({of(metrics.DESIRED)})", "wanted {{deployment}}"),
            ),
            about="Wanted: by autoscaling, if it is configured.",
        ),
        _percentiles("Time between tokens", metrics.ITL, "itl"),
        _percentiles("Time to first token", metrics.TTFT, "ttft"),
        Panel(
            "Violations against what the percentile allows",
            (
                (
                    f"{share(metrics.LATE_TOKENS, metrics.TOKENS, MODEL)}"
                    f" / (1 - max by ({MODEL}) ({of(metrics.SLA_TARGET)}))",
                    "{{deployment}}",
                ),
            ),
            about="Above 1 the SLA is not kept at its percentile.",
        ),
        Panel(
            "Stalls",
            ((rate(metrics.STALLS, MODEL), "{{deployment}}"),),
            "ops",
            about="Tokens a second that came more than 20 times the SLA after the one before.",
        ),
        Panel("Tokens", ((rate(metrics.TOKENS, MODEL), "{{deployment}}"),), "ops"),
        Panel(
            "Requests",
            (
                (rate(metrics.ARRIVALS, MODEL), "came {{deployment}}"),
                (rate(metrics.FINISHED, MODEL), "finished {{deployment}}"),
            ),
            "reqps",
        ),
        _each("SLA out of reach", (metrics.OUT_OF_REACH, ""), most=1),
        Panel(
            "Use of engines and cards",
            (
                (
                    f"avg by ({MODEL}) (rate({of(metrics.BUSY)}[$__rate_interval]))",
                    "engine busy {{deployment}}",
                ),
                ("avg(ray_node_gpus_utilization) / 100", "cards of the cluster, by NVML"),
                (
                    "avg(ray_node_gram_used / (ray_node_gram_used + ray_node_gram_available))",
                    "their memory",
                ),
            ),
            "percentunit",
            1,
            "Busy: the share of time in which a step runs. A batch of one keeps an engine busy.",
        ),
        Panel(
            "What fills the time",
            (
                (
                    f"{rate(metrics.STEPS, f'{MODEL}, bound_by')} / on ({MODEL}) group_left"
                    f" {rate(metrics.STEPS, MODEL)} * on ({MODEL}) group_left"
                    f" avg by ({MODEL}) (rate({of(metrics.BUSY)}[$__rate_interval]))",
                    "{{bound_by}} {{deployment}}",
                ),
            ),
            "percentunit",
            1,
            "Steps by the limit that kept requests waiting; load: none waited. In the rest of"
            " the time no step ran.",
        ),
    ),
    "Autoscaling": (
        Panel(
            "Demand and a replica's capacity",
            (
                (of(metrics.SCALING_DEMAND), "demand {{deployment}}"),
                (of(metrics.SCALING_CAPACITY), "a replica of {{deployment}}"),
            ),
            "reqps",
            about="As autoscaling counts them, in requests of the size that capacity counts.",
        ),
        Panel(
            "What set the number of replicas",
            (
                (
                    f"max by ({MODEL}, reason) ({of(metrics.SCALING_REASON)})",
                    "{{reason}} {{deployment}}",
                ),
            ),
            most=1,
        ),
        Panel("Start of a replica", ((of(metrics.REPLICA_START), "{{deployment}}"),), "s"),
    ),
    "Batches": (
        Panel(
            "Lines without an answer",
            ((f"sum by (application, state) ({of(metrics.BATCH_LINES)})", "{{state}}"),),
        ),
        Panel(
            "Answers",
            ((rate(metrics.BATCH_ANSWERS, "application, outcome"), "{{outcome}}"),),
            "reqps",
        ),
        Panel(
            "Tokens",
            ((rate(metrics.BATCH_TOKENS, "application, kind"), "{{kind}}"),),
            about="Of answers, per second.",
        ),
        Panel(
            "End of the oldest batch",
            (
                (of(metrics.BATCH_END), "at the present rate"),
                (of(metrics.BATCH_WINDOW), "its window"),
            ),
            "s",
            about="Seconds from now. Above its window a batch is sent as `urgent_tier`.",
        ),
    ),
    "Replicas": (
        _each(
            "Cap and running",
            (metrics.MAX_RUNNING, "cap"),
            (metrics.MIN_RUNNING, "min"),
            (metrics.RUNNING, "running"),
        ),
        _each("Waiting", (metrics.WAITING, "")),
        _each("KV memory in use", (metrics.KV_USAGE, ""), unit="percentunit", most=1),
        Panel(
            "What set the cap",
            ((f"sum by (reason) ({of(metrics.LIMIT_REASON)})", "{{reason}}"),),
            about="Replicas by what set their cap.",
        ),
        Panel(
            "Limits that kept requests waiting",
            ((rate(metrics.STEPS, f"{MODEL}, bound_by"), "{{bound_by}} {{deployment}}"),),
            "ops",
            about="Steps per second; load: no request waited.",
        ),
        _each("Token budget of a step", (metrics.TOKEN_BUDGET, "")),
        _each(
            "Steps",
            (metrics.STEP, "as they were"),
            (metrics.PREDICTED_STEP, "by the model"),
            (metrics.STEP_ERROR, "unexplained"),
            unit="s",
        ),
        _each("Longest time between tokens", (metrics.LONGEST_ITL, ""), unit="s"),
        Panel(
            "Preemptions, and errors in Brimful's own code",
            (
                (rate(metrics.PREEMPTIONS, REPLICA), "{{replica}}"),
                (rate(metrics.OWN_ERRORS, REPLICA), "{{replica}}: errors"),
            ),
            "reqps",
        ),
    ),
    "Admission": (
        Panel(
            "Refused",
            ((rate(metrics.REFUSED, "application, class, reason"), "{{class}} {{reason}}"),),
            "reqps",
        ),
        Panel(
            "First token before the deadline",
            (
                (
                    f"1 - {share(metrics.LATE, metrics.STARTED, 'application, class')}",
                    "{{application}} {{class}}",
                ),
            ),
            "percentunit",
            1,
        ),
        Panel("Let in", ((rate(metrics.LET_IN, "application, class"), "{{class}}"),), "reqps"),
        _each("Waiting for a first token", (metrics.QUEUED, "")),
        Panel(
            "Error of the predicted wait",
            tuple(
                (quantile(q, metrics.WAIT_ERROR), f"p{q * 100:g} {{{{deployment}}}}")
                for q in (0.5, 0.99)
            ),
            "s",
        ),
        Panel(
            "At the door",
            ((rate(metrics.DOOR, "application, outcome"), "{{application}} {{outcome}}"),),
            "reqps",
        ),
    ),
    "Control": (
        Panel(
            "Who decides",
            ((f"sum by (mode) ({of(metrics.MODE)})", "{{mode}}"),),
            about="Replicas by the source of their limits.",
        ),
        _each("Limits applied", (metrics.ENFORCED, ""), most=1),
        _each("Live configuration refused", (metrics.CONFIG_REFUSED, ""), most=1),
        _each(
            "Ages",
            (metrics.CONTROLLER_AGE, "answer of the controller"),
            (metrics.REPORT_AGE, "report of the engine"),
            unit="s",
        ),
        Panel(
            "Reports",
            (
                (f"sum(rate({metrics.EXCHANGES.exported}[$__rate_interval]))", "answered"),
                (f"sum(rate({metrics.REFUSED_REPORTS.exported}[$__rate_interval]))", "refused"),
            ),
            "ops",
        ),
        Panel(
            "Replicas known to the controller",
            ((metrics.CONTROLLER_REPLICAS.exported, "{{group}}"),),
        ),
        Panel(
            "Routed by",
            (
                (
                    "sum by (application, outcome) (rate("
                    f'{metrics.ROUTED.exported}{{application=~"$application"}}[$__rate_interval]))',
                    "{{application}} {{outcome}}",
                ),
            ),
            "reqps",
        ),
    ),
    "Prefill and decode apart": (
        Panel(
            "Which model requests for several went to",
            ((rate(metrics.AUTO_MODEL, "application, model"), "{{application}} {{model}}"),),
            "reqps",
        ),
        Panel(
            "Where prompts are prefilled",
            ((rate(metrics.PREFILLS, "application, where"), "{{application}} {{where}}"),),
            "reqps",
            about="remote: by a prefill engine; local: the request needs its prompt in the decode"
            " engine; fallback: no prefill engine could.",
        ),
        Panel(
            "Wait for a prefill engine",
            (
                (
                    f"{rate(metrics.REMOTE_PREFILL, 'application')} / "
                    + rate(metrics.PREFILLS, "application", 'where!="local"'),
                    "{{application}}",
                ),
            ),
            "s",
            about="Mean over the requests for which one was asked.",
        ),
    ),
}
