"""The ``batching`` block: how a replica is filled.

Every default is set here, with its reason.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from controller.errors import ConfigError
from controller.validation import parse

# A lost report costs its time-out, half a lease, and one period until the next answer is applied.
# With three periods, half a period is left for the calls.
LEAST_LEASE_PERIODS = 3
PERIOD_S = 0.5  # between two syncs of one replica
# The longest latency target: far larger values overflow when squared.
A_DAY_MS = 86_400_000.0
STALL_ITLS = 20  # multiple of itl_ms: such a gap shows in no percentile, but every reader sees it


class Block(BaseModel):
    """A configuration block in which an unknown key is an error.

    Attributes:
        removed: keys of the previous release, each with its replacement; they have an error of
            their own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    removed: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _names_removed_keys(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and (gone := given.keys() & cls.removed.keys()):
            said = (f"{key} was removed: {cls.removed[key]}" for key in sorted(gone))
            raise ValueError("; ".join(said))
        return given

    @field_validator("*", mode="before")
    @classmethod
    def _yes_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        # pydantic reads true as 1, but `max: yes` does not mean a cap of 1.
        if isinstance(value, bool):
            annotation = cls.model_fields[info.field_name or ""].annotation
            # A number with bounds is an ``Annotated`` in a union, whose origin is a number.
            kinds = [getattr(k, "__origin__", k) for k in (annotation, *get_args(annotation))]
            if (int in kinds or float in kinds) and bool not in kinds:
                raise ValueError("Input should be a number, not true or false")
        return value


class Sla(Block):
    """The latency SLO. Without ``itl_ms`` only memory and bounds limit the batch."""

    removed: ClassVar[Mapping[str, str]] = {
        "delivery": "itl_ms holds for every gap between two tokens; if longer gaps are fine raise"
        " itl_ms, lower percentile, or give the requests that bear them a class of their own"
        " (classes)"
    }

    itl_ms: float | None = Field(
        None,
        gt=0,
        le=A_DAY_MS,
        description="D_SLA: target for the time between two tokens, ms; up to a day",
    )
    ttft_ms: float | None = Field(
        None, gt=0, le=A_DAY_MS, description="target for the time to first token, ms; up to a day"
    )
    percentile: float = Field(
        99.0, ge=50, lt=100, description="share of tokens that must meet the targets, %"
    )

    @property
    def itl_s(self) -> float | None:
        """D_SLA in seconds; None if decode latency is not limited."""
        return None if self.itl_ms is None else self.itl_ms / 1000

    @property
    def stall_s(self) -> float | None:
        """A longer gap between two tokens is a stall, seconds; None without ``itl_ms``."""
        return None if self.itl_s is None else STALL_ITLS * self.itl_s


def slowed_ms(agreed_ms: float | None, time_scale: float) -> float | None:
    """A latency target for steps that take ``time_scale`` times as long; None: there is none."""
    return None if agreed_ms is None else min(agreed_ms * time_scale, A_DAY_MS)


class Bounds(Block):
    """B_min and B_max of the paper, in running requests."""

    min: int = Field(1, ge=1, description="B_min")
    max: int | None = Field(None, ge=1, description="B_max; none: the engine's max_num_seqs")

    @model_validator(mode="after")
    def _ordered(self) -> "Bounds":
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max must be at least min ({self.min}), got {self.max}")
        return self


class PaperOptions(Block):
    """Constants of arXiv 2503.05248. The paper prints none of alpha, delta, epsilon_D."""

    removed: ClassVar[Mapping[str, str]] = {
        "l0_period_s": "L0 is computed anew every 10 s",
        "live_factor": "`live` fills 0.95 of the KV blocks",
        "chunk_min": "the token budget is 64 tokens at least",
        "chunk_alpha": "for the token budget alpha is 64 tokens",
        "chunk_delta": "for the token budget delta is 16 tokens",
    }

    memory: Literal["linear", "exact", "live"] = Field(
        "linear", description="linear: eq. 14; exact: eq. 12; live: the authors' published code"
    )
    l0: Literal["printed", "buffer"] = Field(
        "printed",
        description="L0 of eq. 14: as printed, or theta*s*sqrt(b) with per-request deviation s",
    )
    units: Literal["tokens", "blocks"] = Field(
        "tokens", description="lengths and eta in tokens, or in whole KV blocks"
    )
    alpha: int = Field(16, ge=1, description="width of Algorithm 2's search interval, requests")
    delta: int = Field(
        4,
        ge=0,
        description="how far the end of the search interval without a"
        " measurement moves per window, requests",
    )
    epsilon_d_ms: float = Field(2.0, ge=0, description="epsilon_D: dead band around D_SLA, ms")
    size_chunk: bool = Field(
        False,
        description="true: Algorithm 2 sizes the token budget instead of the batch (PD fusion)",
    )


class StaticOptions(Block):
    """A fixed step budget with the fixed cap: vLLM's own option, changeable in a live engine."""

    max_num_batched_tokens: int | None = Field(
        None,
        ge=1,
        description="most tokens of a step; none, or more than the engine was started with:"
        " the engine's own value",
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class RolesOptions(Block):
    """How many engines compute prompts for others, if every engine can do both (decision 40)."""

    removed: ClassVar[Mapping[str, str]] = {
        "link_latency_ms": "a KV transfer is taken to begin after 1 ms"
    }

    prefill: Literal["auto"] | int = Field(
        "auto",
        description="engines that compute prompts: auto (as many as give the fleet most"
        " capacity), or a number from 0; at least one engine decodes",
    )
    direct: bool = Field(
        True,
        description="true: the decode engine computes a prompt itself if the first token is"
        " predicted to come sooner; false: all prompts go through a prefill engine"
        " if there is one",
    )
    link_gbit_s: float = Field(25.0, gt=0, description="bandwidth of a KV transfer, Gbit/s")

    @field_validator("prefill", mode="before")
    @classmethod
    def _from_0(cls, value: Any) -> Any:
        if value != "auto" and not (_is_count(value) and value >= 0):
            raise ValueError("Input should be 'auto' or a number from 0")
        return value


EPSILON_M = 0.02


class BatchingConfig(Block):
    """One group's batching: which policy, under which SLO, inside which bounds."""

    removed: ClassVar[Mapping[str, str]] = {
        "exchange_hz": "replicas report twice a second",
        "prefill_floor": "if steps have no room for prompts, one in 100 computes a block of them",
    }

    policy: Literal["static", "paper", "adaptive"] = "adaptive"
    sla: Sla = Sla()
    max_running: Bounds = Bounds()
    overflow_probability: float | None = Field(
        None,
        gt=0,
        lt=0.5,
        description="epsilon_M: `paper`: chance that KV memory overflows; none: 0.02."
        " `adaptive`: share of requests that may be preempted; it keeps as much KV"
        " memory free as that takes, and more if lengths are nearly equal. None"
        " with an SLA: preemptions may cause a tenth of the late tokens that"
        " percentile allows. None without an SLA: preemptions are allowed as long"
        " as throughput gains",
    )
    enforce: bool = Field(
        True, description="false: limits are computed and reported, and not applied"
    )
    step_aside: bool | None = Field(
        None,
        description="true: a request that will miss sla.ttft_ms lets others go first; none:"
        " true with `adaptive`",
    )
    lease_s: float = Field(
        5.0,
        ge=LEAST_LEASE_PERIODS * PERIOD_S,
        le=60,
        description="how long a replica uses its last limits if the controller sends none, s;"
        " replicas report twice a second",
    )
    static: StaticOptions = StaticOptions()
    paper: PaperOptions = PaperOptions()
    roles: RolesOptions | None = Field(
        None,
        description="prefill and decode apart, with engines that change roles: auto, a number"
        " of prefill engines, or a block; none: each engine does both",
    )

    @field_validator("roles", mode="before")
    @classmethod
    def _roles_in_short(cls, given: Any) -> Any:
        if given == "auto" or _is_count(given):
            return {"prefill": given}
        if not isinstance(given, dict | RolesOptions | None):
            raise ValueError("Input should be 'auto', a number of prefill engines, or a block")
        return given

    @property
    def steps_aside(self) -> bool:
        """Whether late requests are deprioritized (if ``sla.ttft_ms`` is set)."""
        return self.policy == "adaptive" if self.step_aside is None else self.step_aside

    @property
    def epsilon_m(self) -> float:
        """The chance of an overflow that eqs. 12 and 14 accept."""
        return EPSILON_M if self.overflow_probability is None else self.overflow_probability

    @property
    def preempted_at_most(self) -> float | None:
        """The share of requests that ``adaptive`` may let be preempted; None: while it pays.

        After a preemption a token is later than any SLA allows. If the share comes from the SLA's
        percentile, a long answer counts as several (``preempted_share.worth_of``).
        """
        if self.overflow_probability is not None or self.sla.itl_ms is None:
            return self.overflow_probability
        return 1 - self.sla.percentile / 100

    @property
    def preempted_per_gap(self) -> bool:
        """Whether that share is of gaps between tokens; a preemption makes one of them late."""
        return self.overflow_probability is None

    @property
    def period_s(self) -> float:
        """Seconds between two syncs of one replica."""
        return PERIOD_S

    def upper_bound(self, max_num_seqs: int) -> int:
        """B_max: the configured bound, or the engine's start value if none is set.

        Raises:
            ConfigError: the bound, or B_min, is above what the engine was started with.
        """
        for key, value in (("max", self.max_running.max), ("min", self.max_running.min)):
            if value is not None and value > max_num_seqs:
                raise ConfigError(
                    [
                        f"batching.max_running.{key}: {value} is above max_num_seqs={max_num_seqs},"
                        " the size the engine is started with; lower it or raise max_num_seqs"
                    ]
                )
        return self.max_running.max or max_num_seqs


def parse_batching(data: Any, where: str = "batching") -> BatchingConfig:
    """The ``batching`` block from plain data (None: all defaults).

    Raises:
        ConfigError: naming each wrong key, its value and what is allowed.
    """
    return parse(BatchingConfig, {} if data is None else data, where)
