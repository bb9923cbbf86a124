"""Cards by name, from ``configs/gpus.json``."""

from functools import cache

from pydantic import NonNegativeFloat, PositiveFloat

from configs import shipped
from controller.config import Block
from controller.data_file import read_json
from controller.errors import ConfigError
from controller.validation import unknown_key

GIB = 2**30


class Card(Block):
    """One GPU.

    ``memory_gib`` is what its driver reports; rates are dense ones, without sparsity; ``link`` is
    one direction. ``accelerator_type`` is Ray's name for it.
    """

    accelerator_type: str
    memory_gib: PositiveFloat
    hbm_gb_per_s: PositiveFloat
    bf16_tflops: PositiveFloat
    fp8_tflops: NonNegativeFloat = 0.0
    link_gb_per_s: PositiveFloat

    def engine_defaults(self) -> tuple[int, int]:
        """vLLM 0.29's ``max_num_seqs`` and ``max_num_batched_tokens`` on it.

        Source: ``EngineArgs.get_batch_defaults``, API server.
        """
        if self.memory_gib * GIB >= 160e9:
            return 1024, 16384
        if self.memory_gib >= 70 and not self.accelerator_type.startswith("A100"):
            return 1024, 8192
        return 256, 2048


class CardFile(Block):
    source: str
    gpus: dict[str, Card]


@cache
def cards() -> CardFile:
    """All cards."""
    return read_json(shipped("gpus.json"), CardFile)


def load_card(name: str) -> Card:
    """One of them.

    Raises:
        ConfigError: nothing has that name.
    """
    known = cards().gpus
    for own, card in known.items():
        if own.lower() == name.lower():
            return card
    raise ConfigError([unknown_key("--gpu", name, known)])
