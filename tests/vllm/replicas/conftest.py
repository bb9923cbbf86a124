"""Servers that several modules ask."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.vllm.replicas.admission_app import Served, serving


@pytest.fixture(scope="session")
async def served(tiny_llama: Path) -> AsyncIterator[Served]:
    async with serving(tiny_llama) as made:
        yield made
