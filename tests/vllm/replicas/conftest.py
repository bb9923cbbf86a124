"""Servers that several modules ask."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # the oldest and the newest vLLM lack what it imports
    from tests.vllm.replicas.admission_app import Served


@pytest.fixture(scope="session")
async def served(tiny_llama: Path) -> "AsyncIterator[Served]":
    from tests.vllm.replicas.admission_app import serving

    async with serving(tiny_llama) as made:
        yield made
