"""Sums over steps, so that a report tells of those since the report before."""

from dataclasses import dataclass

from controller.records import RecentSteps, StepSample


@dataclass(frozen=True, slots=True)
class StepSums:
    """Sums over all steps that decoded; two states' difference is what happened between them."""

    steps: int = 0
    decodes: int = 0
    tokens: int = 0
    itl_s: float = 0.0

    def plus(self, sample: StepSample, tokens_per_decode: int) -> "StepSums":
        """With one more step."""
        return StepSums(
            self.steps + 1,
            self.decodes + sample.decodes,
            self.tokens + sample.decodes * tokens_per_decode + sample.prefill_tokens,
            self.itl_s + sample.duration_s * sample.decodes,
        )

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
