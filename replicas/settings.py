"""What an engine is told about Brimful: ``additional_config["brimful"]`` of its configuration."""

from typing import Any

from pydantic import Field

from controller.classes import AdmissionConfig, ServiceClass
from controller.config import BatchingConfig, Block, parse_batching
from controller.validation import parse
from replicas.executor import Executor

PLACE = "additional_config.brimful"


class EmulateSettings(Block):
    """An accelerator that is only emulated (``replicas.emulator``)."""

    profile: str = Field(description="step-time profile: a name, or FILE[:NAME]")
    kv_tokens: int | None = Field(None, gt=0, description="KV memory; None: the profile's")
    time_scale: float = Field(
        1.0, gt=0, description="steps and SLA take this many times as long: for bigger fleets"
    )
    noise_cv: float = Field(0.0, ge=0, description="coefficient of variation of step times")
    seed: int = Field(0, ge=0, description="of noise and tokens")
    slow_replicas: int = Field(0, ge=0, description="so many of the replicas are slower")
    slow_factor: float = Field(2.0, ge=1, description="their steps take this many times as long")


class EngineSettings(Block):
    """The block as a whole; all of it may be left out, which gives the default policy alone."""

    batching: BatchingConfig = BatchingConfig()
    leased: bool = Field(False, description="a controller is expected, and hands out leases")
    group: str | None = Field(None, description="whose statistics are pooled; None: nobody's")
    classes: dict[str, ServiceClass] | None = Field(
        None, description="who is served first; None, and no admission: nobody is refused"
    )
    admission: AdmissionConfig | None = None
    emulate: EmulateSettings | None = None
    executor: Executor | None = Field(
        None, description="where the model runs; None: as the engine was started"
    )


def parse_settings(additional_config: Any) -> EngineSettings:
    """The settings in vLLM's ``additional_config``, which holds other projects' keys too.

    Raises:
        ConfigError: naming each wrong key of ours, its value and what is allowed.
    """
    # vLLM also allows an object with a hash here, which then belongs to somebody else.
    ours = additional_config.get("brimful") if isinstance(additional_config, dict) else None
    return parse(EngineSettings, {} if ours is None else ours, PLACE)


class LiveSettings(Block):
    """A deployment's ``user_config``: what reaches running engines without a restart."""

    batching: dict[str, Any] | None = Field(None, description="in place of the entry's own block")


def parse_live(user_config: Any, entrys: BatchingConfig, time_scale: float) -> BatchingConfig:
    """The batching block that a ``user_config`` asks for; the entry's own where it has none.

    Args:
        entrys: as the replica was deployed with.
        time_scale: of an emulated accelerator, by which the SLA is stretched; 1: a real one.

    Raises:
        ConfigError: naming each wrong key, its value and what is allowed.
    """
    live = parse(LiveSettings, {} if user_config is None else user_config, "user_config")
    if live.batching is None:
        return entrys
    return slowed(parse_batching(live.batching, "user_config.batching"), time_scale)


def slowed(batching: BatchingConfig, time_scale: float) -> BatchingConfig:
    """The same batching where every step takes ``time_scale`` times as long."""
    sla = batching.sla
    latencies = {
        key: value and value * time_scale
        for key, value in (("itl_ms", sla.itl_ms), ("ttft_ms", sla.ttft_ms))
    }
    return batching.model_copy(update={"sla": sla.model_copy(update=latencies)})
