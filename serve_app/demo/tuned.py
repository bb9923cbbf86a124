"""The best static limits for the demo's load, found beforehand on machines of some kinds."""

import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from serve_app.demo.machine import CPUINFO
from serve_app.demo.model import DemoModel

PATH = Path(__file__).with_suffix(".json")


def kind_of_machine(cpuinfo: Path = CPUINFO) -> str:
    """Architecture, cores, matrix instructions: "x86_64, 2 cores, AVX-512"."""
    try:
        words = set(cpuinfo.read_text().split())
    except OSError:
        words = set()
    names = {"amx_bf16": "AMX", "avx512_bf16": "AVX-512 with bfloat16", "avx512f": "AVX-512"}
    units = next((name for flag, name in names.items() if flag in words), "no AVX-512")
    return f"{platform.machine()}, {os.cpu_count()} cores, {units}"


@dataclass(frozen=True, slots=True)
class StaticLimits:
    """What vLLM would be started with: ``max_num_seqs`` and ``max_num_batched_tokens``."""

    cap: int
    token_budget: int


@dataclass(frozen=True, slots=True)
class Tuned:
    """The limits to compare with.

    Args:
        machine: on what kind of machine they were found.
        here: whether that is the kind of this one.
    """

    limits: StaticLimits
    machine: str
    here: bool


def tuned_for(model: DemoModel, path: Path = PATH) -> Tuned:
    """What was found on this kind of machine, or else on the one that was tuned first."""
    found = json.loads(path.read_text())[model.name]
    kind = kind_of_machine()
    here = kind in found
    machine = kind if here else next(iter(found))
    return Tuned(StaticLimits(**found[machine]), machine, here)
