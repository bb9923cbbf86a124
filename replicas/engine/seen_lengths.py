"""What one replica has seen of its requests' lengths."""

import numpy as np

from controller.models.arrays import Ints
from controller.models.lengths import REQUESTS_KEPT, LengthMoments, LengthRing
from controller.models.live_lengths import LiveLengths

PROMPTS_KEPT = 256  # a mean to 6% if lengths spread as much as they are long
# Of those that ended: an engine's mean to 9%. Once so many of a new mix of requests have ended, no
# older ones are among them.
LATEST_KEPT = 128


class SeenLengths:
    """Told of every request that comes and ends.

    Attributes:
        live: whether moments are corrected by what those that run have shown, as long as fewer have
            ended than are kept; the paper's policies go by finished requests.
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
        """A request ran to its end; of its input so much had been cached."""
        self._finished.add(input_tokens, output_tokens, cached_tokens)
        self._latest.add(input_tokens, output_tokens, cached_tokens)
        self._live.finished(output_tokens)

    def aborted(self, output_tokens: int) -> None:
        """A request was aborted after so many tokens."""
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
        """Moments of the few requests that ended last, tokens: a new mix shows there first."""
        return self._latest.moments()

    def moments(self, generated: Ints | None) -> LengthMoments:
        """Lengths of the last requests, tokens.

        Args:
            generated: output tokens so far of those that run, shape (n,); None if not known.
        """
        finished = self._finished.moments()
        if generated is None or not self.live:
            return finished
        self._live.update(generated)
        if finished.n >= REQUESTS_KEPT:
            return finished
        return self._live.corrected(finished, self.prompts)
