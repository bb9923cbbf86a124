"""Workload files: quantiles of traces (JSON) and single requests (JSONL)."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from controller.config import Block
from controller.data_file import parse_json_line, read_json, read_text
from controller.errors import ConfigError
from replicas.engine.prefixes import PREFIX_TOKENS
from simulator.workloads.lengths import MOST_TOKENS
from simulator.workloads.requests import Request

MOST_S = 1e7  # span of arrivals: four months take minutes to replay
Length = Annotated[float, Field(gt=0, le=MOST_TOKENS)]
Tokens = Annotated[int, Field(gt=0, le=MOST_TOKENS)]


class QuantileEntry(Block):
    """One trace by its marginal quantiles.

    Args:
        quantiles: percent, from 0 to 100, ascending.
        input_tokens, output_tokens: the lengths at these quantiles.
        spearman: rank correlation of input and output.
        mean_rate_per_s, gap_cv: arrivals, and the coefficient of variation of their gaps.
        rate_per_s_by_minute: the trace's rate in each of its minutes; not sampled from.
        idc_60s: index of dispersion of the counts per minute; not sampled from.
    """

    source: str = ""
    requests: PositiveInt | None = None
    quantiles: tuple[Annotated[float, Field(ge=0, le=100)], ...] = Field(min_length=2)
    input_tokens: tuple[Length, ...]
    output_tokens: tuple[Length, ...]
    spearman: float = Field(0.0, ge=-1, le=1)
    mean_rate_per_s: Annotated[float, Field(ge=1e-3, le=1e6)] | None = None
    gap_cv: float = Field(1.0, ge=0, le=100)
    idc_60s: float | None = None
    rate_per_s_by_minute: tuple[NonNegativeFloat, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for key in ("quantiles", "input_tokens", "output_tokens"):
            values = getattr(self, key)
            if len(values) != len(self.quantiles):
                raise ValueError(f"{key} has {len(values)} values, quantiles {len(self.quantiles)}")
            if list(values) != sorted(values):
                raise ValueError(f"{key} must not descend")
        if (self.quantiles[0], self.quantiles[-1]) != (0, 100):
            raise ValueError("quantiles must go from 0 to 100")
        return self


class WorkloadFile(Block):
    """A file of workloads by name; the format of ``configs/workloads/traces.json``."""

    note: str = ""
    workloads: dict[str, QuantileEntry] = Field(min_length=1)


class RequestLine(Block):
    """One line of a JSONL workload, as written by ``brimful capture``.

    Args:
        arrival_s: from any origin, Unix time included.
        output_tokens: generated tokens; 0 if the client left before the first one, or asked for an
            embedding. It is replayed as one token.
        cancelled: the client left; replayed as an answer that ends there.
        service: its class; a replay only uses the priority.
        replica: the replica that served it.
        prefix: see ``Request``.
    """

    arrival_s: NonNegativeFloat
    input_tokens: Tokens
    output_tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS)]
    max_tokens: Tokens | None = None
    priority: int = 0
    cancelled: bool = False
    service: str | None = None
    replica: str | None = None
    prefix: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _within(self) -> Self:
        if len(self.prefix) > (most := self.input_tokens // PREFIX_TOKENS):
            raise ValueError(
                f"prefix has {len(self.prefix)} names; {self.input_tokens} input_tokens have"
                f" {most} times {PREFIX_TOKENS}"
            )
        if self.max_tokens is not None and self.output_tokens > self.max_tokens:
            raise ValueError(
                f"output_tokens {self.output_tokens} is above max_tokens {self.max_tokens}"
            )
        return self


def read_workloads(path: Path) -> dict[str, QuantileEntry]:
    """The workloads of a JSON file, by name.

    Raises:
        ConfigError: naming the line and field that is wrong.
    """
    return read_json(path, WorkloadFile).workloads


def read_requests(path: Path, replica: str | None = None) -> tuple[Request, ...]:
    """The requests of a JSONL file, in order of arrival, the first at 0; empty lines are skipped.

    Args:
        replica: only requests that it served; None: all.

    Raises:
        ConfigError: naming the line and field that is wrong, or the span of arrivals is too long.
    """
    lines = [
        parse_json_line(text, RequestLine, str(path), number)
        for number, text in enumerate(read_text(path).splitlines(), 1)
        if text.strip()
    ]
    if not lines:
        raise ConfigError([f"{path}: no request in it: one JSON object a line"])
    if replica is not None:
        of = sorted({line.replica for line in lines if line.replica is not None})
        lines = [line for line in lines if line.replica == replica]
        if not lines:
            said = f"no request of replica {replica}"
            raise ConfigError([f"{path}: {said}; it has those of: {', '.join(of) or 'none'}"])
    lines.sort(key=lambda line: line.arrival_s)
    first_s, last_s = lines[0].arrival_s, lines[-1].arrival_s
    if last_s - first_s > MOST_S:
        over = f"{last_s - first_s:g} s, from arrival_s {first_s:g} to {last_s:g}"
        raise ConfigError([f"{path}: its requests come over {over}; at most {MOST_S:,.0f} s"])
    return tuple(
        Request(
            line.arrival_s - first_s,
            line.input_tokens,
            max(line.output_tokens, 1),
            line.max_tokens,
            line.priority,
            prefix=line.prefix,
        )
        for line in lines
    )
