"""What an engine is told about Brimful: ``additional_config["brimful"]`` of its configuration."""

from typing import Any

from pydantic import Field

from controller.classes import AdmissionConfig, ServiceClass
from controller.config import BatchingConfig, Block
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
