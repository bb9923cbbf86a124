"""Lengths of one replica's requests."""

import numpy as np

from controller.models.arrays import Ints
from controller.models.lengths import REQUESTS_KEPT, LengthMoments, LengthRing
from controller.models.live_lengths import LiveLengths

PROMPTS_KEPT = 256  # the mean is within 6% if the deviation is as large
# Requests that ended last: their mean is within 9%. Once this many of a new mix have ended, no
# older ones are included.
LATEST_KEPT = 128


class SeenLengths:
    """Counts every request that comes and ends.

    Attributes:
        live: whether moments are corrected by running requests while fewer have ended than are
            kept; the paper's policies use finished requests alone.
    """

    def __init__(self, *, live: bool) -> None:
        self.live = live
        self._finished = LengthRing()
        self._latest = LengthRing(LATEST_KEPT)
        self._prompts = LengthRing(PROMPTS_KEPT)
        self._live = LiveLengths()

    def arrived(self, prompt_tokens: int | None) -> None:
        """A request came, with its prompt if that is known."""
        if prompt_tokens is not None:
            self._prompts.add(prompt_tokens, 0)

    def finished(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> None:
        """Count a request that ran to its end; ``cached_tokens`` of its input were cached."""
        self._finished.add(input_tokens, output_tokens, cached_tokens)
        self._latest.add(input_tokens, output_tokens, cached_tokens)
        self._live.finished(output_tokens)

    def aborted(self, output_tokens: int) -> None:
        """Count a request that was aborted after ``output_tokens``."""
        self._live.aborted(output_tokens)

    @property
    def exposure(self) -> bytes:
        """As ``ReplicaReport.lengths_seen``, as of the last ``moments``."""
        seen = self._live.seen
        return np.concatenate([seen.ended, seen.at_risk]).astype(np.float32).tobytes()

    @property
    def prompts(self) -> LengthMoments:
        """Lengths of the last prompts that came, tokens; outputs count as 0."""
        return self._prompts.moments()

    @property
    def latest(self) -> LengthMoments:
        """Moments of the requests that ended last, tokens: a new mix shows here first."""
        return self._latest.moments()

    def moments(self, generated: Ints | None) -> LengthMoments:
        """Lengths of the last requests, tokens.

        Args:
            generated: output tokens so far of each running request, shape (n,); None: unknown.
        """
        finished = self._finished.moments()
        if generated is None or not self.live:
            return finished
        self._live.update(generated)
        if finished.n >= REQUESTS_KEPT:
            return finished
        return self._live.corrected(finished, self.prompts)
