"""``--policy``: a policy with settings of its engine or of its batching block."""

from dataclasses import dataclass
from typing import Any, Literal

import yaml
from pydantic import Field, NonNegativeInt, PositiveInt

from controller.config import BatchingConfig, Block, Sla, parse_batching
from controller.errors import ConfigError
from controller.policies.registry import POLICIES
from controller.validation import parse, unknown_key
from controller.yaml_text import Loader, problem_of
from replicas.profiles.profile import StepProfile
from simulator.virtual.rivals import NAMED, options_of


class EngineOptions(Block):
    """Options that an engine is started with: vLLM's, by vLLM's names.

    Args:
        scheduling_policy: None: priority if the workload has priorities, otherwise fcfs.
        async_scheduling: schedule the next step before the output of this one is back, vLLM's
            default if possible; False: every step knows all earlier outputs.
    """

    max_num_seqs: PositiveInt
    max_num_batched_tokens: PositiveInt
    block_size: PositiveInt = 16
    watermark: float = Field(0.0, ge=0, lt=1)
    enable_prefix_caching: bool = False
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: NonNegativeInt = 0
    scheduling_policy: Literal["fcfs", "priority"] | None = None
    async_scheduling: bool = False


def engine_of(profile: StepProfile) -> EngineOptions:
    """vLLM's defaults for this card."""
    return EngineOptions(
        max_num_seqs=profile.max_num_seqs, max_num_batched_tokens=profile.max_num_batched_tokens
    )


class Speculation(Block):
    """Drafts: ``tokens`` a step, each accepted with this probability until one is not.

    Args:
        tokens: drafts of a step, at most.
        draft_s: time to draft one token for the whole batch; 0: from the text itself.
        by_batch: vLLM's ``num_speculative_tokens_per_batch_size``; empty: ``tokens`` in each step.
    """

    tokens: PositiveInt
    acceptance: float = Field(ge=0, le=1)
    draft_s: float = Field(0.0, ge=0)
    by_batch: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """One line of a comparison.

    Args:
        spec: as given.
        speculation: None: one token a step.
        rival: the constants of a named rival; None: another policy.
    """

    spec: str
    batching: BatchingConfig
    engine: EngineOptions
    speculation: Speculation | None = None
    rival: Block | None = None

    @property
    def name(self) -> str:
        """The policy without its settings."""
        return self.spec.partition(":")[0]


def parse_policy(spec: str, sla: Sla, engine: EngineOptions) -> Plan:
    """``NAME[:key=value,...]`` as a plan.

    A key is an engine option (``EngineOptions``), a constant of a named rival
    (``benchmarks.baselines.options``), a path in the batching block (``paper.memory``,
    ``overflow_probability``), or one in the policy's own block (``memory``).

    Args:
        sla: the SLO of all policies of a comparison; a ``sla.`` key changes it for one.
        engine: the default engine of all policies.

    Raises:
        ConfigError: naming the policy, key or value that is wrong, and what is allowed.
    """
    name = spec.partition(":")[0]
    if name not in POLICIES and name not in NAMED:
        raise ConfigError([unknown_key("policy", name, [*POLICIES, *NAMED])])
    options = engine.model_dump()
    block: dict[str, Any] = {
        "policy": name if name in POLICIES else "static",
        "sla": sla.model_dump(),
    }
    constants: dict[str, Any] = {}
    own = options_of(name)
    for key, value in settings_of(spec):
        if key in EngineOptions.model_fields:
            options[key] = value
        elif own is not None and key in own.model_fields:
            constants[key] = value
        else:
            _set(block, _path(name, key, spec), value)
    where = f"policy {spec}"
    batching = parse_batching(block, where)
    return Plan(
        spec,
        batching,
        check_engine(parse(EngineOptions, options, where), where),
        rival=None if own is None else parse(own, constants, where),
    )


def check_engine(engine: EngineOptions, where: str) -> EngineOptions:
    """Return the options if vLLM starts with them.

    Raises:
        ConfigError: a step has fewer tokens than the batch may have requests.
    """
    if engine.max_num_batched_tokens < engine.max_num_seqs:
        raise ConfigError(
            [
                f"{where}: max_num_batched_tokens={engine.max_num_batched_tokens} is not allowed:"
                f" at least max_num_seqs={engine.max_num_seqs}, or vLLM does not start"
            ]
        )
    return engine


def settings_of(spec: str) -> list[tuple[str, Any]]:
    """The settings of ``NAME:key=value,...``, with values as YAML.

    Raises:
        ConfigError: naming the pair or the value that is wrong.
    """
    pairs = [pair.partition("=") for pair in spec.partition(":")[2].split(",") if pair]
    wrong = [key for key, equals, value in pairs if not (key and equals and value)]
    if wrong:
        raise ConfigError([f"policy {spec}: {wrong[0]!r} is not allowed: key=value"])
    return [(key.strip(), _value(spec, key.strip(), value)) for key, _, value in pairs]


def _value(spec: str, key: str, text: str) -> Any:
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ConfigError([f"policy {spec}: {key}: {problem_of(error)}"]) from None
    except RecursionError:
        raise ConfigError([f"policy {spec}: {key}: nested too deeply to be read"]) from None


def _path(policy: str, key: str, spec: str) -> tuple[str, ...]:
    """The path of a key in the batching block; a policy's own block takes precedence."""
    first, *rest = key.split(".")
    own: Any = options_of(policy)
    if own is None:
        own = getattr(BatchingConfig.model_fields.get(policy), "annotation", None)
    own_keys = own.model_fields if isinstance(own, type) and issubclass(own, Block) else {}
    if first in own_keys:
        return (policy, first, *rest)
    if first in BatchingConfig.model_fields and first != "policy":
        return (first, *rest)
    allowed = [*EngineOptions.model_fields, *own_keys, *BatchingConfig.model_fields]
    raise ConfigError([unknown_key(f"policy {spec}", key, (k for k in allowed if k != "policy"))])


def _set(block: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        inner = block.setdefault(part, {})
        if not isinstance(inner, dict):
            break
        block = inner
    block[path[-1]] = value
