"""What the lab does one by one: each task a process of its own, its result one line of a file."""

from dataclasses import dataclass

from benchmarks.engine_lab.hog import Hog

MOST_TTFT_S = 2.0  # mean: more is not inside the SLA, however few tokens are late


@dataclass(frozen=True, slots=True)
class Ground:
    """What all tasks of a condition have in common.

    Args:
        model: the name of its folder.
        sla_ms, percentile: the SLA.
        seconds, skip_s: of a run's arrivals, and how many of them do not count.
        search_s: of a replay's arrivals, where settings are searched.
    """

    model: str
    hog: Hog | None
    sla_ms: float
    seconds: float
    skip_s: float
    search_s: float = 600.0
    percentile: float = 99.0

    @property
    def sla(self) -> dict[str, float]:
        """As in a batching block."""
        return {"itl_ms": self.sla_ms, "percentile": self.percentile}


@dataclass(frozen=True, slots=True)
class Limits:
    """vLLM's ``max_num_seqs`` and ``max_num_batched_tokens``; None: its default."""

    cap: int | None = None
    token_budget: int | None = None


@dataclass(frozen=True, slots=True)
class EngineTask:
    """Requests served by a real engine in real time: by ``adaptive``, or by vLLM's scheduler."""

    ground: Ground
    rate_per_s: float
    seed: int
    adaptive: bool
    limits: Limits


@dataclass(frozen=True, slots=True)
class RecordTask:
    """Steps of a real engine under light and heavy load, while its token budget moves."""

    ground: Ground


@dataclass(frozen=True, slots=True)
class RateTask:
    """The highest rate at which some static limits hold SLA and ``MOST_TTFT_S``, in the replay."""

    ground: Ground


@dataclass(frozen=True, slots=True)
class RankTask:
    """Static limits by their cost at this rate, in the replay."""

    ground: Ground
    rate_per_s: float


@dataclass(frozen=True, slots=True)
class BesideTask:
    """Runs of a row in the replay, on the steps that were recorded in them."""

    runs: tuple[EngineTask, ...]


Task = EngineTask | RecordTask | RateTask | RankTask | BesideTask
