"""The settings that are tuned, by policy.

A rival is tuned for each workload: vLLM's two limits and its own constants. A search begins with
the published constants, on vLLM's default engine and on the best static setting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from replicas.profiles.profile import StepProfile

Value = int | float | str
CAP, CHUNK = "max_num_seqs", "max_num_batched_tokens"
# The largest chunk of one prompt (vLLM's option); under an SLA a step has 50 to 300 tokens.
LONGEST, LONGEST_TOKENS = "long_prefill_token_threshold", (0, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Point:
    """A policy with some of its constants set; the others are the published ones.

    Args:
        base: a spec of ``simulator.virtual.plan`` with the settings that are not tuned.
    """

    base: str
    values: tuple[tuple[str, Value], ...] = ()

    @property
    def spec(self) -> str:
        """The spec, for ``simulator.virtual.plan``."""
        settings = ",".join(f"{key}={_shown(value)}" for key, value in self.values)
        return self.base + ((":", ",")[":" in self.base] + settings if settings else "")

    @property
    def rival(self) -> str:
        """The policy's name."""
        return self.base.partition(":")[0].rpartition("/")[2]

    def but(self, changed: Mapping[str, Value]) -> "Point":
        """This point with these values; a step has at least one token for each request."""
        values = dict(self.values) | dict(changed)
        cap, chunk = values.get(CAP), values.get(CHUNK)
        if isinstance(cap, int) and isinstance(chunk, int):
            values[CAP] = min(cap, chunk)
        return Point(self.base, tuple(values.items()))


def point_of(base: str, spec: str) -> Point:
    """The point whose spec this is."""
    settings = spec.removeprefix(base).lstrip(":,")
    pairs = (pair.split("=") for pair in settings.split(",") if pair)
    return Point(base, tuple((key, _read(value)) for key, value in pairs))


def _read(text: str) -> Value:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _shown(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The settings of one rival that are tuned.

    Args:
        scaled: constants that are scaled up and down, whole ones by at least 1. The engine's limits
            are always among them.
        choices: constants with few sensible values; ``LONGEST`` is always among them.
        begins: constants to begin with, on the best static engine; the published ones are always
            tried as well.
    """

    scaled: tuple[str, ...] = ()
    choices: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    begins: tuple[Mapping[str, Value], ...] = ({},)


SIZE_STEPS = ("refiner", "qoserve", "fairbatching", "slos_serve")  # these make the chunk themselves
_DEADLINES: dict[str, tuple[Value, ...]] = {
    "slack": ("gaps", "paced"),
    "model": ("profile", "linear"),
    "ttft_s": (0.5, 2.0, 6.0),
}
_DEADLINE_BEGINS: tuple[Mapping[str, Value], ...] = (
    {"slack": "gaps", "model": "profile", "margin": 1.0},
    {"slack": "gaps", "model": "linear", "margin": 1.0},
    # As published: what stands here is changed, too.
    {"slack": "paced", "model": "linear", "margin": 1.0},
)

SWEEPS = {
    "sarathi": Sweep(),
    "refiner": Sweep(
        scaled=("slo_frac",), begins=({"slo_frac": 1.0}, {"slo_frac": 0.9}, {"slo_frac": 1.1})
    ),
    "qoserve": Sweep(
        scaled=("margin", "least_tokens"),
        choices={
            "slack": ("gaps", "paced"),
            "token_step": (2, 16, 64, 256),
            "ms_per_token": (0.0, 1.0, 8.0),
            "ttft_s": (2.0, 6.0),
            "low_memory_tokens": (0, 32_000),
        },
        begins=(
            {"slack": "gaps", "margin": 1.0, "least_tokens": 32, "token_step": 16},
            {"slack": "gaps", "margin": 1.2, "least_tokens": 128, "token_step": 256},
            # As published: what stands here is changed, too.
            {"slack": "paced", "margin": 1.2, "least_tokens": 128, "token_step": 256},
        ),
    ),
    "fairbatching": Sweep(
        scaled=("margin",),
        choices={**_DEADLINES, "urgent_itls": (0.0, 1.0, 2.0)},
        begins=_DEADLINE_BEGINS,
    ),
    "slos_serve": Sweep(
        scaled=("margin",),
        choices={**_DEADLINES, "reserved_tokens": (0, 500)},
        begins=_DEADLINE_BEGINS,
    ),
    "past_future": Sweep(
        choices={
            "reserved_frac": (0.0, 0.03, 0.05, 0.1),
            "first_guess": (128, 1024),
            "lengths": ("distribution", "average"),
        },
        begins=({"lengths": "distribution"}, {"lengths": "average"}),
    ),
    "new_token_ratio": Sweep(
        scaled=("first",),
        choices={"newcomers": ("whole", "ratio"), "most_new_tokens": (512, 4096)},
        begins=({"first": 0.7},),
    ),
}


def first_points(rival: str, static: Point, profile: StepProfile) -> tuple[Point, ...]:
    """The first settings of a search, with the published constants on vLLM's default engine.

    Args:
        static: the best static setting of this workload.
        profile: its default engine is tried as well.
    """
    sweep, limits = SWEEPS.get(rival, Sweep()), dict(static.values)
    engines: list[Mapping[str, Value]] = [limits]
    if rival in SIZE_STEPS:
        engines.append({CAP: profile.max_num_seqs, CHUNK: profile.max_num_batched_tokens})
    bases = [dict(begin) for begin in sweep.begins]
    points = [Point(rival).but({**engine, **base}) for engine, base in product(engines, bases)]
    return tuple(dict.fromkeys([*points, Point(rival)]))


def around(point: Point, step: float) -> list[Point]:
    """The neighbours: one constant changed, then both limits of the engine together."""
    sweep, values = SWEEPS.get(point.rival, Sweep()), dict(point.values)
    factors = 1 + step, 1 / (1 + step)
    near: list[Point] = []
    for key in (CAP, CHUNK, *sweep.scaled):
        value = values.get(key)
        if isinstance(value, int | float):
            near += (point.but({key: _scaled(value, factor)}) for factor in factors)
    now = {LONGEST: 0} | values
    for key, choices in {LONGEST: LONGEST_TOKENS, **sweep.choices}.items():
        near += (point.but({key: one}) for one in choices if one != now.get(key))
    cap, chunk = values.get(CAP), values.get(CHUNK)
    if isinstance(cap, int) and isinstance(chunk, int):
        near += (point.but({CAP: _scaled(cap, f), CHUNK: _scaled(chunk, f)}) for f in factors)
    return [other for other in near if other != point]


def _scaled(value: int | float, factor: float) -> int | float:
    if isinstance(value, float):
        return value * factor
    scaled = round(value * factor)
    return max(scaled if scaled != value else value + (1 if factor > 1 else -1), 1)


def _grid(choices: Mapping[str, Sequence[Value]]) -> tuple[Mapping[str, Value], ...]:
    """Every choice of one with every choice of the others."""
    return tuple(dict(zip(choices, one, strict=True)) for one in product(*choices.values()))


# Without an SLA few constants matter; a grid of those, judged by tokens/s.
OFFLINE: dict[str, tuple[Mapping[str, Value], ...]] = {
    "static": (
        *_grid({CAP: (64, 96, 128, 160, 192)}),
        *_grid({"watermark": (0.0, 0.02, 0.05, 0.1)}),
    ),
    "sarathi": ({}, {CHUNK: 512}, {CHUNK: 512, CAP: 128}),
    "past_future": (
        *_grid({"reserved_frac": (0.0, 0.02, 0.05, 0.1), "first_guess": (128, 1024)}),
        *_grid({"lengths": ("average",), "busy_frac": (0.0, 0.85, 0.95, 1.0)}),
    ),
    "new_token_ratio": _grid(
        {
            "first": (0.2, 0.4, 0.7, 1.0),
            "newcomers": ("whole", "ratio"),
            "most_new_tokens": (512, 4096),
        }
    ),
    "qoserve": ({}, {"ms_per_token": 0.0}, {"ms_per_token": 0.0, "low_memory_tokens": 0}),
}


def offline_points(rival: str) -> tuple[Point, ...]:
    """Settings tried without an SLA; the published constants are among them."""
    return tuple(
        dict.fromkeys([Point(rival), *(Point(rival).but(c) for c in OFFLINE.get(rival, ()))])
    )
