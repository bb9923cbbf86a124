"""Every metric of Brimful: name, kind, unit, labels. Pure: exporters use these.

Names, units and suffixes follow Prometheus. Ray adds the prefix ``ray_``, and Ray Serve adds
``application``, ``deployment`` and ``replica`` to what a replica exports. The router and
autoscaling travel by value into Ray's processes, without this module, so they repeat their names.
``docs/metrics.md`` has an equal list (``tests/unit/tools/test_pages.py``).
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter"]
Exporter = Literal["replica", "router", "controller", "autoscaling", "batches"]

# Labels that Ray adds, by exporter.
LABELS: dict[Exporter, tuple[str, ...]] = {
    "replica": ("application", "deployment", "replica"),
    "router": ("application",),
    "controller": (),
    "autoscaling": ("application", "deployment"),
    "batches": ("application", "deployment", "replica"),
}


@dataclass(frozen=True, slots=True)
class Metric:
    """Args:
    name: as given to Ray.
    unit: of its value.
    labels: in addition to ``LABELS``; each has few values.
    """

    name: str
    kind: Kind
    unit: str
    about: str
    labels: tuple[str, ...] = ()
    by: Exporter = "replica"

    @property
    def exported(self) -> str:
        """Its name in Prometheus."""
        return f"ray_{self.name}"

    @property
    def args(self) -> tuple[str, str, tuple[str, ...]]:
        """Arguments of Ray's metric classes."""
        return self.name, self.about, self.labels


def _gauge(name: str, unit: str, about: str, *labels: str, by: Exporter = "replica") -> Metric:
    return Metric(f"brimful_{name}", "gauge", unit, about, labels, by)


def _counter(name: str, unit: str, about: str, *labels: str, by: Exporter = "replica") -> Metric:
    return Metric(f"brimful_{name}_total", "counter", unit, about, labels, by)


MAX_RUNNING = _gauge("max_running", "requests", "The cap on running requests.")
MIN_RUNNING = _gauge("min_running", "requests", "B_min: the cap goes no lower.")
LIMIT_REASON = _gauge("limit_reason", "0 or 1", "1 for what set the cap, 0 for the rest.", "reason")
TOKEN_BUDGET = _gauge("token_budget", "tokens", "Token budget of the last step.")
RUNNING = _gauge("running", "requests", "Requests running in the engine.")
WAITING = _gauge("waiting", "requests", "Requests waiting in the engine.")
KV_USAGE = _gauge("kv_usage_ratio", "0 to 1", "Share of KV memory in use.")
STEP = _gauge(
    "step_seconds", "seconds", "Measured step time: mean over the decodes since the last report."
)
PREDICTED_STEP = _gauge(
    "step_predicted_seconds",
    "seconds",
    "Predicted step time of the same steps, mean.",
)
STEP_ERROR = _gauge(
    "step_error_seconds",
    "seconds",
    "Error of the step-time model, root mean square.",
)
CAPACITY = _gauge(
    "capacity_requests_per_second",
    "requests/s",
    "Requests/s that the replica carries inside the SLA.",
)
ARRIVAL_RATE = _gauge(
    "arrival_requests_per_second",
    "requests/s",
    "Requests/s that arrived, over the last ten seconds.",
)
OUT_OF_REACH = _gauge(
    "sla_out_of_reach", "0 or 1", "1 if no batch keeps the SLA, whatever its size."
)
SLA = _gauge("sla_seconds", "seconds", "The SLA that is configured.", "latency")
SLA_HELD = _gauge(
    "sla_held_ratio",
    "0 to 1",
    "Share of the SLA that a step may take, so that tokens leave the server inside the SLA.",
)
LATE_ANYWAY = _gauge(
    "late_anyway_ratio",
    "0 to 1",
    "Share of tokens over the last minute that were late and would be late without prompts too.",
)
SLA_TARGET = _gauge("sla_target_ratio", "0 to 1", "Share of tokens that must be inside the SLA.")
MODE = _gauge(
    "control_mode",
    "0 or 1",
    "1 for the mode of control, 0 for the rest: leased, fallback, local.",
    "mode",
)
ENFORCED = _gauge("enforced", "0 or 1", "1 if limits are applied, not only computed.")
REPORT_AGE = _gauge("report_age_seconds", "seconds", "Time since the last report of the engine.")
LONGEST_ITL = _gauge(
    "longest_itl_seconds", "seconds", "The longest time between tokens since the engine started."
)
CONTROLLER_AGE = _gauge(
    "controller_age_seconds",
    "seconds",
    "Time since the batch controller last answered this replica.",
)
CONFIG_REFUSED = _gauge(
    "config_refused",
    "0 or 1",
    "1 if the last user_config was refused; the one before stays in force.",
)
TOKENS = _counter("tokens", "tokens", "Generated tokens after a request's first.")
LATE_TOKENS = _counter("late_tokens", "tokens", "Tokens that came later than the SLA.")
STALLS = _counter(
    "stalls", "tokens", "Tokens that came more than 20 times the SLA after the token before."
)
FIRST_TOKENS = _counter("first_tokens", "requests", "Requests that got a first token.")
LATE_FIRST_TOKENS = _counter(
    "late_first_tokens", "requests", "First tokens that came later than the SLA."
)
ITL = _counter(
    "itl_seconds_bucket", "tokens", "Tokens by the time since the token before, cumulative.", "le"
)
TTFT = _counter(
    "ttft_seconds_bucket", "requests", "First tokens by the time to first token, cumulative.", "le"
)
ARRIVALS = _counter("arrivals", "requests", "Requests that came to the engine.")
FINISHED = _counter("finished", "requests", "Requests that ran to their end.")
PREEMPTIONS = _counter("preemptions", "requests", "Requests that lost their KV blocks.")
BUSY = _counter("busy_seconds", "seconds", "Time in which the engine ran a step.")
OWN_ERRORS = _counter("own_errors", "errors", "Errors in Brimful's own code; the engine went on.")
STEPS = _counter("steps", "steps", "Steps by the limit that kept requests waiting.", "bound_by")
LET_IN = _counter("let_in", "requests", "Requests that admission let in.", "class")
STARTED = _counter("started", "requests", "Requests that got a first token.", "class")
LATE = _counter("late", "requests", "Requests whose first token missed its deadline.", "class")
REFUSED = _counter("refused", "requests", "Requests that admission refused.", "class", "reason")
QUEUED = _gauge(
    "without_first_token",
    "requests",
    "Requests that admission let in and that have no first token yet.",
)
WAIT_ERROR = _counter(
    "wait_error_seconds_bucket",
    "requests",
    "Requests by the error of their predicted wait, cumulative.",
    "le",
)
DOOR = _counter(
    "door_requests",
    "requests",
    "HTTP requests by the name of their API key and the outcome of the checks before the engine.",
    "key",
    "outcome",
)
AUTO_MODEL = _counter(
    "auto_model_requests",
    "requests",
    "Requests for the auto model, by the model that was chosen.",
    "model",
)
PREFILLS = _counter(
    "prefills",
    "requests",
    "Requests of a decode replica, by the place of their prefill.",
    "where",
)
REMOTE_PREFILL = _counter(
    "remote_prefill_seconds", "seconds", "Time that requests waited for prefill replicas, summed."
)
ROUTED = _counter("routed", "requests", "Requests routed, by what decided.", "outcome", by="router")
EXCHANGES = _counter(
    "controller_exchanges", "reports", "Reports that were answered.", by="controller"
)
REFUSED_REPORTS = _counter(
    "controller_refused_reports", "reports", "Reports that were refused.", by="controller"
)
CONTROLLER_REPLICAS = _gauge(
    "controller_replicas", "replicas", "Replicas that report, by group.", "group", by="controller"
)
ENGINE_DEATHS = _counter(
    "engine_deaths", "engines", "Engines that died under a replica.", "group", by="controller"
)
FAILOVERS = _counter(
    "failovers", "requests", "Requests of dead engines.", "group", "outcome", by="controller"
)
FAILOVER_GAP = _counter(
    "failover_gap_seconds",
    "seconds",
    "Time from the death of an engine to the next token of each answer, summed.",
    "group",
    by="controller",
)
DESIRED = _gauge(
    "desired_replicas",
    "replicas",
    "Replicas that autoscaling wants, within the bounds.",
    by="autoscaling",
)
SCALING_DEMAND = _gauge(
    "scaling_demand_requests_per_second",
    "requests/s",
    "Demand, in requests of the size that capacity counts.",
    by="autoscaling",
)
SCALING_CAPACITY = _gauge(
    "scaling_capacity_requests_per_second",
    "requests/s",
    "A replica's SLA capacity; 0: unknown.",
    by="autoscaling",
)
REPLICA_START = _gauge(
    "replica_start_seconds",
    "seconds",
    "Time that a replica's start is expected to take.",
    by="autoscaling",
)
SCALING_REASON = _gauge(
    "scaling_reason",
    "0 or 1",
    "1 for what set the number of replicas, 0 for the rest.",
    "reason",
    by="autoscaling",
)

BATCH_LINES = _gauge(
    "batch_lines", "lines", "Lines of batches without an answer.", "state", by="batches"
)
BATCH_END = _gauge(
    "batch_end_seconds",
    "seconds",
    "Time until the oldest batch ends at the present rate, at most a year; 0: unknown.",
    by="batches",
)
BATCH_WINDOW = _gauge(
    "batch_window_seconds",
    "seconds",
    "Time until the completion window of the oldest batch ends; 0: no batch.",
    by="batches",
)
BATCH_ANSWERS = _counter(
    "batch_answers", "lines", "Lines that have an answer.", "outcome", by="batches"
)
BATCH_TOKENS = _counter(
    "batch_tokens", "tokens", "Tokens of answers, by their usage.", "kind", by="batches"
)

METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
