"""What is asked of the overload bench's fleet, and of others that its rules were not made on."""

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.classes import ServiceClasses, parse_classes
from replicas.profiles.profile import StepProfile
from replicas.profiles.profile_file import load_profile

PROFILE = "paper-fig3"
REPLICAS, SLOTS, STEP_TOKENS = 2, 12, 512
ITL_MS = 150.0
CLASSES: dict[str, dict[str, Any]] = {
    "interactive": {"ttft_ms": 2000, "priority": 0},
    "standard": {"ttft_ms": 5000, "priority": 10, "sheddable": True, "default": True},
    "batch": {"ttft_ms": 20_000, "priority": 20, "sheddable": True},
}
SHARES = {"interactive": 0.08, "standard": 0.46, "batch": 0.46}  # 0.8 of capacity at 10x
LOADS = (1.0, 2.0, 5.0, 10.0, 1.0)
PROMPT_TOKENS, OUTPUT_TOKENS = (20, 120), (40, 120)
ONE = 0.9  # 1x: of what the fleet served while it was asked for more than it could

Lengths = Callable[[random.Random], tuple[int, int]]


def lengths(rng: random.Random) -> tuple[int, int]:
    """Prompt and output tokens of one request."""
    return rng.randint(*PROMPT_TOKENS), rng.randint(*OUTPUT_TOKENS)


@dataclass(frozen=True, slots=True)
class Shape:
    """What is asked of which fleet.

    Args:
        shares: of each class.
        loads: each for ``seconds``, in capacities.
        time_scale: the profile's steps take so many times as long; deadlines are as given.
    """

    classes: ServiceClasses
    shares: Mapping[str, float]
    lengths: Lengths = lengths
    loads: Sequence[float] = LOADS
    seconds: float = 60.0
    replicas: int = REPLICAS
    slots: int = SLOTS
    step_tokens: int = STEP_TOKENS
    time_scale: float = 2.0

    def step_s(self, decodes: int, prompt_tokens: int) -> float:
        """How long a step takes."""
        return _profile().step_s(decodes, 0, prompt_tokens, 0) * self.time_scale

    def capacity_per_s(self) -> float:
        """1x: a share of what it serves with every slot taken and every step full of prompts.

        A request takes its share of the slots' steps, which its prompt makes longer.
        """
        rng = random.Random(0)
        drawn = [self.lengths(rng) for _ in range(2000)]
        prompt = sum(p for p, _ in drawn) / len(drawn)
        output = sum(o for _, o in drawn) / len(drawn)
        plain_s = self.step_s(self.slots, 0)
        per_token_s = (self.step_s(self.slots, 100) - plain_s) / 100
        one_s = output / self.slots * plain_s + prompt * per_token_s
        return ONE * self.replicas / one_s


@functools.cache
def _profile() -> StepProfile:
    return load_profile(PROFILE)


def benched(time_scale: float = 2.0, seconds: float = 60.0) -> Shape:
    """As over HTTP."""
    classes = parse_classes(CLASSES).slowed(time_scale)
    return Shape(classes, SHARES, seconds=seconds, time_scale=time_scale)


def _heavy_tail(rng: random.Random) -> tuple[int, int]:
    return rng.randint(20, 400), max(1, min(int(rng.lognormvariate(3.9, 0.9)), 600))


def _long_prompts(rng: random.Random) -> tuple[int, int]:
    return min(int(rng.lognormvariate(6.5, 1.0)) + 1, 8000), rng.randint(10, 60)


def others() -> dict[str, Shape]:
    """Other shapes, known when admission's constants were set, by what is special about each."""
    three = {
        "gold": {"ttft_ms": 2000, "priority": 0},
        "silver": {"ttft_ms": 8000, "priority": 5, "sheddable": True, "default": True},
        "batch": {"ttft_ms": 25_000, "priority": 9, "sheddable": True},
    }
    alike = {
        name: {**one, "ttft_ms": 1000, "default": name == "silver"} for name, one in three.items()
    }
    kept = {name: {**one, "sheddable": False} for name, one in three.items()}
    five = {
        "a": {"ttft_ms": 1500, "priority": -5},
        "b": {"ttft_ms": 4000, "default": True},
        "c": {"ttft_ms": 8000, "priority": 3, "sheddable": True},
        "d": {"priority": 9, "sheddable": True},
        "e": {"ttft_ms": 60_000, "priority": 11, "sheddable": True, "queue_timeout_s": 90},
    }
    spread = {"gold": 0.1, "silver": 0.5, "batch": 0.4}
    return {
        "heavy tail of lengths": Shape(
            parse_classes(CLASSES).slowed(2.0), SHARES, lengths=_heavy_tail
        ),
        "long prompts": Shape(
            parse_classes(three), spread, lengths=_long_prompts, slots=32, time_scale=1.0
        ),
        "big replicas, other steps": Shape(
            parse_classes(three), {"gold": 0.2, "silver": 0.4, "batch": 0.4},
            loads=(0.5, 3, 1, 8, 2, 1), seconds=40, replicas=4, slots=48, time_scale=1.0,
        ),
        "one deadline for all": Shape(
            parse_classes(alike), {"gold": 0.2, "silver": 0.4, "batch": 0.4},
            replicas=1, slots=64, time_scale=1.0,
        ),
        "nothing is sheddable": Shape(
            parse_classes(kept), spread, loads=(0.8, 1.2, 1.5, 3, 6, 0.8, 10, 1), seconds=40
        ),
        "five classes": Shape(
            parse_classes(five), {"a": 0.05, "b": 0.15, "c": 0.3, "d": 0.3, "e": 0.2},
            loads=(0.7, 1.5, 4, 0.9, 7, 1), replicas=3, slots=24, time_scale=1.0,
        ),
        "one class": Shape(
            parse_classes({"only": {"ttft_ms": 5000}}), {"only": 1.0}, loads=(1, 4, 1, 20, 1)
        ),
        "a ramp": Shape(
            parse_classes(CLASSES).slowed(2.0), SHARES,
            loads=(0.6, 0.8, 1, 1.3, 1.7, 2.2, 3, 4, 5, 6.5, 8, 10, 7, 4, 2, 1), seconds=15,
        ),
        "bursts": Shape(
            parse_classes(CLASSES).slowed(2.0), SHARES, loads=(1, 6) * 6 + (1,), seconds=12
        ),
    }  # fmt: skip
