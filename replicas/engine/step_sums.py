"""Sums over steps, from which a report takes the steps since the report before."""

from controller.records import RecentSteps, StepSample


class StepSums:
    """Sums over all steps with decodes; the difference of two states covers the steps between."""

    __slots__ = ("decodes", "itl_s", "steps", "tokens")

    def __init__(
        self, steps: int = 0, decodes: int = 0, tokens: int = 0, itl_s: float = 0.0
    ) -> None:
        self.steps, self.decodes, self.tokens, self.itl_s = steps, decodes, tokens, itl_s

    def add(self, sample: StepSample, seen_s: float, tokens_per_decode: int) -> None:
        """Count one more step, which took ``seen_s`` for clients."""
        self.steps += 1
        self.decodes += sample.decodes
        self.tokens += sample.decodes * tokens_per_decode + sample.prefill_tokens
        self.itl_s += seen_s * sample.decodes

    def copy(self) -> "StepSums":
        """A copy of the present state."""
        return StepSums(self.steps, self.decodes, self.tokens, self.itl_s)

    def since(self, mark: "StepSums") -> RecentSteps:
        """The means over the steps since ``mark``."""
        steps, decodes = self.steps - mark.steps, self.decodes - mark.decodes
        if not steps:
            return RecentSteps()
        return RecentSteps(
            steps=steps,
            itl_s=(self.itl_s - mark.itl_s) / decodes,
            decodes=decodes / steps,
            tokens=(self.tokens - mark.tokens) / steps,
        )
