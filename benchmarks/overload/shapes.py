"""Fleet, classes and loads of the overload bench."""

import random
from typing import Any

PROFILE = "paper-fig3"
REPLICAS, SLOTS, STEP_TOKENS = 2, 12, 512
ITL_MS = 150.0
TIME_SCALE = 2.0  # steps are slept this many times slower
CLASSES: dict[str, dict[str, Any]] = {
    "interactive": {"ttft_ms": 2000, "priority": 0},
    "standard": {"ttft_ms": 5000, "priority": 10, "sheddable": True, "default": True},
    "batch": {"ttft_ms": 20_000, "priority": 20, "sheddable": True},
}
SHARES = {"interactive": 0.08, "standard": 0.46, "batch": 0.46}  # 0.8 of capacity at 10x
LOADS = (1.0, 2.0, 5.0, 10.0, 1.0)
PROMPT_TOKENS, OUTPUT_TOKENS = (20, 120), (40, 120)
ONE = 0.9  # 1x: share of the fleet's throughput under overload


def lengths(rng: random.Random) -> tuple[int, int]:
    """Prompt and output tokens of one request."""
    return rng.randint(*PROMPT_TOKENS), rng.randint(*OUTPUT_TOKENS)
