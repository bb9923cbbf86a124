"""Files of step-time profiles: tables of measured steps, straight lines, recordings, by name.

``configs/profiles/*.json`` are the named profiles, and show the format.
"""

from functools import cache
from typing import Annotated, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from configs import shipped
from controller.config import Block
from controller.data_file import read_json, split_spec
from controller.errors import ConfigError
from controller.validation import unknown_key
from replicas.profiles.profile import (
    MOST_KV_TOKENS,
    Launch,
    LinearCost,
    StepProfile,
    TableCost,
    ascending,
)
from replicas.profiles.recorded import RecordedEntry

HOST_MS = 3.0  # input preparation, sampling and output of vLLM 0.29 in synchronous mode
HBM_EFFICIENCY = 0.75  # decode attention reads KV at 0.7 to 0.8 of the datasheet's bandwidth
PREFILL_EFFICIENCY = 0.5  # FlashAttention-2 on A100 and H100, of the datasheet's bf16 rate

MOST_MS = 1e6  # bound on any part of a step: far beyond real steps, and sums stay finite
Milliseconds = Annotated[float, Field(ge=0, le=MOST_MS)]


class Entry(Block):
    """Common fields of tables and lines.

    ``kv_capacity_tokens`` is the KV memory; ``gpu`` and ``mem_gb`` decide vLLM's defaults.
    """

    gpu: str = ""
    mem_gb: float = Field(0, ge=0)
    kv_capacity_tokens: int = Field(gt=0, le=MOST_KV_TOKENS)

    def engine_defaults(self) -> tuple[int, int]:
        """vLLM 0.29's ``max_num_seqs`` and ``max_num_batched_tokens`` on this card.

        Source: ``EngineArgs.get_batch_defaults``, API server; cards of 160 GB, 70 GB but for
        A100, and the rest.
        """
        if self.mem_gb >= 160:
            return 1024, 16384
        if self.mem_gb >= 70 and "a100" not in self.gpu.lower():
            return 1024, 8192
        return 256, 2048


class LineEntry(Entry):
    """A straight line (``LinearCost``), milliseconds."""

    fixed_ms: float = Field(gt=0, le=MOST_MS)
    ms_per_decode: Milliseconds
    ms_per_kv_token: Milliseconds = 0.0
    ms_per_prefill_token: Milliseconds = 0.0
    ms_per_prefill_context: Milliseconds = 0.0

    def cost(self) -> LinearCost:
        return LinearCost(
            self.fixed_ms / 1000,
            self.ms_per_decode / 1000,
            self.ms_per_kv_token / 1000,
            self.ms_per_prefill_token / 1000,
            self.ms_per_prefill_context / 1000,
        )


class TableEntry(Entry):
    """Per-layer tables (``TableCost``) and the data of attention: bytes, bandwidth, flops.

    ``mixed_ms``: additional time of a step with a prompt, of any size.
    ``weights_gb``: weights that a step reads, whole model; 0: unknown.
    ``launch_ms``, ``launch_eager_ms``, ``graph_tokens``: ``Launch``.
    ``all_reduce_ms_per_layer`` holds both of a layer's all-reduces: vidur measured 0.318 ms for one
    of 64 MiB over 4 H100, and the table says 0.636 ms at those 4096 tokens.
    """

    model: str = ""
    tensor_parallel: PositiveInt = 1
    layers: PositiveInt
    hidden: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    hbm_gb_per_s: PositiveFloat
    bf16_tflops: PositiveFloat
    kv_bytes_per_token: PositiveInt
    weights_gb: float = Field(0, ge=0)
    tokens: tuple[PositiveInt, ...] = Field(min_length=2)
    linear_ms_per_layer: tuple[Milliseconds, ...]
    all_reduce_ms_per_layer: tuple[Milliseconds, ...]
    host_ms: Milliseconds = HOST_MS
    mixed_ms: Milliseconds = 0.0
    launch_ms: Milliseconds = 0.0
    launch_eager_ms: Milliseconds = 0.0
    graph_tokens: NonNegativeInt = 0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not ascending(self.tokens):
            raise ValueError("tokens must ascend")
        if self.launch_ms and not self.graph_tokens:
            raise ValueError("launch_ms is of steps of up to graph_tokens tokens, which is not set")
        if self.launch_eager_ms < self.launch_ms:
            raise ValueError("launch_eager_ms must be at least launch_ms")
        for key in ("linear_ms_per_layer", "all_reduce_ms_per_layer"):
            if len(getattr(self, key)) != len(self.tokens):
                raise ValueError(
                    f"{key} has {len(getattr(self, key))} values for {len(self.tokens)} tokens"
                )
        return self

    @property
    def kv_read_frac(self) -> float:
        return self.kv_bytes_per_token / (self.weights_gb * 1e9) if self.weights_gb else 0.0

    def launch(self) -> Launch:
        return Launch(self.launch_ms / 1000, self.launch_eager_ms / 1000, self.graph_tokens)

    def cost(self) -> TableCost:
        per_layer_ms = zip(self.linear_ms_per_layer, self.all_reduce_ms_per_layer, strict=True)
        # QK^T and AV, a multiplication and an addition each, over all query heads.
        flops = 4 * self.hidden * self.layers
        return TableCost(
            self.tokens,
            tuple((self.layers * sum(both) + self.host_ms) / 1000 for both in per_layer_ms),
            self.kv_bytes_per_token
            / (self.tensor_parallel * HBM_EFFICIENCY * self.hbm_gb_per_s * 1e9),
            flops / (self.tensor_parallel * PREFILL_EFFICIENCY * self.bf16_tflops * 1e12),
            self.mixed_ms / 1000,
        )


class ProfileFile(Block):
    """A file: the source of its numbers, and its profiles by name."""

    source: str
    units: dict[str, str] = {}
    profiles: dict[str, TableEntry] = {}
    lines: dict[str, LineEntry] = {}
    recordings: dict[str, RecordedEntry] = {}

    @property
    def entries(self) -> dict[str, TableEntry | LineEntry | RecordedEntry]:
        return {**self.profiles, **self.lines, **self.recordings}

    def profile(self, name: str) -> StepProfile:
        """One of them."""
        entry = self.entries[name]
        cost, recording = (
            entry.fitted() if isinstance(entry, RecordedEntry) else (entry.cost(), None)
        )
        size = entry.kv_capacity_tokens, *entry.engine_defaults()
        launch, kv_read_frac = Launch(), 0.0
        if isinstance(entry, TableEntry):
            launch, kv_read_frac = entry.launch(), entry.kv_read_frac
        return StepProfile(name, self.source, *size, cost, recording, launch, kv_read_frac)


def load_profile(spec: str) -> StepProfile:
    """A named profile, ``FILE:NAME``, or ``FILE`` if it holds only one.

    Raises:
        ConfigError: nothing has that name, or the file is wrong at a line and field.
    """
    named = named_profiles()
    if spec in named:
        return named[spec].profile(spec)
    path, name = split_spec(spec)
    if path is None:
        raise ConfigError([unknown_key("profile", spec, named)])
    file = read_json(path, ProfileFile)
    names = list(file.entries)
    if name is None and len(names) == 1:
        name = names[0]
    if name is None:
        raise ConfigError([f"profile: {path} holds {', '.join(names)}; name one: {path}:NAME"])
    if name not in names:
        raise ConfigError([unknown_key(f"profile: {path}", name, names)])
    return file.profile(name)


@cache
def named_profiles() -> dict[str, ProfileFile]:
    """The profiles of ``configs/profiles`` by name, each in its file."""
    files = [read_json(path, ProfileFile) for path in sorted(shipped("profiles").glob("*.json"))]
    return {name: file for file in files for name in file.entries}
