"""Workloads by name, from files, or synthetic."""

from pathlib import Path

from configs import shipped
from controller.data_file import split_spec
from controller.errors import ConfigError
from controller.validation import unknown_key
from simulator.workloads.conversations import parse_agents
from simulator.workloads.files import QuantileEntry, read_requests, read_workloads
from simulator.workloads.lengths import (
    MOST_CV,
    MOST_TOKENS,
    Exponential,
    Fixed,
    LogNormal,
    Quantiles,
    SomeLong,
)
from simulator.workloads.traffic import Drawn, Recorded, Workload

_MEANS = f"IN,OUT, mean tokens from 1 to {MOST_TOKENS:,}"
_MEANS_AND_CV = (
    f"IN,OUT,CV, mean tokens from 1 to {MOST_TOKENS:,}, CV of the outputs above 0 to {MOST_CV:g}"
)
# Synthetic workloads: the number of parameters, and the parameters.
SYNTHETIC = {
    "fixed": (2, f"IN,OUT, whole tokens from 1 to {MOST_TOKENS:,}"),
    "exponential": (2, _MEANS),
    "lognormal": (3, _MEANS_AND_CV),
    "reasoning": (3, _MEANS_AND_CV),
    "long-prompts": (2, _MEANS),
}
AGENTS = "agents"
REASONED = 30_000  # tokens of the longest answer in a context of 32,768
LONG_SHARE, LONG_FROM, LONG_TO = 0.05, 16_384, 32_000  # of prompts; tokens


def load_workload(spec: str) -> Workload:
    """The workload of a command-line spec.

    ``NAME``, ``FILE[:NAME]`` (JSON), ``FILE`` (JSONL), ``fixed:IN,OUT``, ``exponential:IN,OUT``,
    ``lognormal:IN,OUT,CV`` (mean tokens; prompts with CV 1, outputs with this CV),
    ``reasoning:IN,OUT,CV`` (lognormal with outputs of up to ``REASONED`` tokens),
    ``long-prompts:IN,OUT`` (exponential, but 5% of the prompts have 16k to 32k tokens),
    ``agents[:TURNS,TOOL,OUT,PAUSE_S]`` (conversations, ``simulator.workloads.conversations``).

    Raises:
        ConfigError: the name is unknown, or the file is wrong at a line and field.
    """
    kind, _, lengths = spec.partition(":")
    if kind == AGENTS:
        return Workload(spec, parse_agents(spec, lengths))
    if kind in SYNTHETIC:
        return _synthetic(spec, kind, lengths)
    known = named_workloads()
    if spec in known:
        return known[spec]
    path, name = split_spec(spec)
    if path is None:
        raise ConfigError([unknown_key("workload", spec, [*known, *SYNTHETIC, AGENTS])])
    if path.suffix == ".jsonl":
        return _recorded(path)
    found = _of_file(path)
    if name is None and len(found) == 1:
        name = next(iter(found))
    if name is None:
        raise ConfigError([f"workload: {path} holds {', '.join(found)}; name one: {path}:NAME"])
    if name not in found:
        raise ConfigError([unknown_key(f"workload: {path}", name, found)])
    return found[name]


def named_workloads() -> dict[str, Workload]:
    """All workloads of ``configs/workloads``."""
    files = sorted(shipped("workloads").glob("*.json"))
    return {name: workload for path in files for name, workload in _of_file(path).items()}


def _synthetic(spec: str, kind: str, lengths: str) -> Workload:
    try:
        numbers = [float(part) for part in lengths.split(",")]
    except ValueError:
        numbers = []
    shape, form = SYNTHETIC[kind]
    sound = len(numbers) == shape and all(1 <= tokens <= MOST_TOKENS for tokens in numbers[:2])
    if not sound or (kind == "fixed" and any(x % 1 for x in numbers)):
        raise ConfigError([f"workload: {spec!r} is not allowed: {kind}:{form}"])
    if kind == "fixed":
        return Workload(spec, Drawn(Fixed(int(numbers[0])), Fixed(int(numbers[1]))))
    if kind in ("lognormal", "reasoning"):
        mean_in, mean_out, cv = numbers
        if not 0 < cv <= MOST_CV:
            raise ConfigError([f"workload: {spec!r} is not allowed: {kind}:{form}"])
        outputs = LogNormal(mean_out, cv)
        if kind == "reasoning":
            outputs = LogNormal(mean_out, cv, REASONED)
        return Workload(spec, Drawn(LogNormal(mean_in, 1.0), outputs))
    if kind == "long-prompts":
        prompts = SomeLong(Exponential(numbers[0], LONG_FROM), LONG_SHARE, LONG_FROM, LONG_TO)
        return Workload(spec, Drawn(prompts, Exponential(numbers[1])))
    return Workload(spec, Drawn(Exponential(numbers[0]), Exponential(numbers[1])))


def _of_file(path: Path) -> dict[str, Workload]:
    return {name: _of_entry(name, entry) for name, entry in read_workloads(path).items()}


def _of_entry(name: str, entry: QuantileEntry) -> Workload:
    return Workload(
        name,
        Drawn(
            Quantiles(entry.quantiles, entry.input_tokens),
            Quantiles(entry.quantiles, entry.output_tokens),
            entry.spearman,
        ),
        entry.mean_rate_per_s,
        entry.gap_cv,
    )


def _recorded(path: Path) -> Workload:
    requests = read_requests(path)
    span_s = requests[-1].arrival_s - requests[0].arrival_s
    rate = (len(requests) - 1) / span_s if span_s else None
    return Workload(str(path), Recorded(requests), rate)
