"""Disturbances of an accelerator's steps: pauses, slow phases, encoders, CUDA graphs. Seeded.

For the replay and the emulated accelerator. Each kind draws from a stream of its own, so adding one
does not change another.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated

import numpy as np
from pydantic import Field

from replicas.profiles.profile import StepNoise, StepProfile
from replicas.profiles.recorded_time import RecordedTime

MOST_FACTOR = 1000.0
MOST_S = 1e6  # longest duration here, so that sums stay finite
LEAST_PHASE_S = 0.01  # phases are drawn one by one, through idle times as well
MOST_GRAPH_TOKENS = 10_000_000

# strict: pydantic takes true for 1, and a share of 1 is not what `share: yes` means.
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
Seconds = Annotated[float, Field(strict=True, ge=0, le=MOST_S)]
Factor = Annotated[float, Field(strict=True, ge=1, le=MOST_FACTOR)]
GraphSize = Annotated[int, Field(strict=True, gt=0, le=MOST_GRAPH_TOKENS)]


@dataclass(frozen=True, slots=True)
class Pauses:
    """A share of the steps takes longer by a pause, exponential with mean ``mean_s``."""

    share: Share
    mean_s: Seconds


@dataclass(frozen=True, slots=True)
class SlowPhases:
    """For a share of the time, steps take ``factor`` times as long.

    Phases are exponential: slow ones with mean ``mean_s``, the others with
    ``mean_s`` x (1 - share) / share.
    """

    share: Share
    factor: Factor
    mean_s: Annotated[float, Field(strict=True, ge=LEAST_PHASE_S, le=MOST_S)]


@dataclass(frozen=True, slots=True)
class EncoderWork:
    """A share of the requests has an image, which makes its first step longer."""

    share: Share
    duration_s: Seconds


@dataclass(frozen=True, slots=True)
class Disturbances:
    """The disturbances of steps; by default none.

    Args:
        noise_cv: coefficient of variation of all step times.
        mixed_s: additional time of a step with any prompt token.
        graph_sizes: steps of decodes alone are padded up to the next of these sizes, in tokens;
            those beyond the last are not padded.
    """

    noise_cv: Annotated[float, Field(strict=True, ge=0, le=10)] = 0.0
    pauses: tuple[Pauses, ...] = ()
    slow: tuple[SlowPhases, ...] = ()
    encoder: EncoderWork | None = None
    mixed_s: Seconds = 0.0
    graph_sizes: tuple[GraphSize, ...] = ()


class DisturbedSteps:
    """How long each step of one engine takes.

    (profile + mixed + encoder) x slow factors x noise + pauses. The profile's time is that of the
    padded batch; with a recorded profile, the recording's time for that much work.

    Args:
        seed: of all random numbers; the noise is ``StepNoise``'s of the same seed.
    """

    def __init__(self, profile: StepProfile, disturbances: Disturbances, seed: int) -> None:
        self._profile = profile
        self._recorded = (
            RecordedTime(profile.recording, np.random.default_rng([seed, 3]))
            if profile.recording
            else None
        )
        self._mixed_s = disturbances.mixed_s
        self._graph_sizes = sorted(disturbances.graph_sizes)
        self._noise = StepNoise(disturbances.noise_cv, seed)
        self._encoder = disturbances.encoder or EncoderWork(0.0, 0.0)
        self._seed = seed
        self._pauses = [
            _Pausing(pauses, np.random.default_rng([seed, 1, number]))
            for number, pauses in enumerate(disturbances.pauses)
        ]
        self._slow = [
            _Slowing(phases, np.random.default_rng([seed, 2, number]))
            for number, phases in enumerate(disturbances.slow)
        ]

    def step_s(
        self,
        decodes: int,
        kv: int,
        prefill: int,
        context: int,
        now_s: float,
        new_request_ids: Sequence[str] = (),
        drafts: int = 0,
    ) -> float:
        """Seconds that the next step takes.

        Args:
            decodes, kv, prefill, context: as in ``controller.records.StepSample``.
            now_s: when it begins, since the engine started; must not decrease.
            new_request_ids: requests of which nothing was computed in an earlier step.
            drafts: speculated tokens, each verified like a prompt token: one more row in the
                step's matrices.
        """
        if not prefill:
            decodes = self._padded(decodes + drafts) - drafts
        step_s = self._profile.step_s(decodes, kv, prefill + drafts, context)
        if self._recorded is not None:
            step_s = self._recorded.time_s(step_s)
        if prefill:
            step_s += self._mixed_s
        if self._encoder.share:
            images = sum(map(self._has_image, new_request_ids))
            step_s += images * self._encoder.duration_s
        for slowing in self._slow:
            step_s *= slowing.factor(now_s)
        step_s *= self._noise.factor()
        for pausing in self._pauses:
            step_s += pausing.pause_s()
        return step_s

    def _padded(self, tokens: int) -> int:
        place = bisect_left(self._graph_sizes, tokens)
        return self._graph_sizes[place] if place < len(self._graph_sizes) else tokens

    def _has_image(self, request_id: str) -> bool:
        # By the id, not at random: the same requests have images under every policy.
        digest = blake2b(f"{self._seed} {request_id}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) < self._encoder.share * 2**64


class _Pausing:
    def __init__(self, pauses: Pauses, rng: np.random.Generator) -> None:
        self._pauses, self._rng = pauses, rng

    def pause_s(self) -> float:
        """The next step's pause, mostly 0."""
        if self._rng.random() >= self._pauses.share:
            return 0.0
        return self._pauses.mean_s * self._rng.standard_exponential()


class _Slowing:
    """Begins in the middle of a phase, which is slow with the usual probability."""

    def __init__(self, phases: SlowPhases, rng: np.random.Generator) -> None:
        self._factor, self._rng = phases.factor, rng
        usual_s = phases.mean_s * (1 - phases.share) / phases.share if phases.share else np.inf
        self._mean_s = usual_s, phases.mean_s
        self._is_slow = bool(rng.random() < phases.share)
        self._until_s = self._length_s()

    def _length_s(self) -> float:
        return self._mean_s[self._is_slow] * self._rng.standard_exponential()

    def factor(self, now_s: float) -> float:
        """The disturbance of a step that begins now."""
        while now_s >= self._until_s:
            self._is_slow = not self._is_slow
            self._until_s += self._length_s()
        return self._factor if self._is_slow else 1.0
