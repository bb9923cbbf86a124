"""What control would have done if it only advises: starts and prompt tokens that it would have
moved to later steps. No I/O, no clock of its own."""

from controller.records import Advised, EngineLimits, EngineState, StepLimits, StepSample


class Shadow:
    """Counts steps whose limits were computed and not applied."""

    def __init__(self) -> None:
        self._asked: tuple[StepLimits, EngineState] | None = None
        self._counted = [0, 0, 0, 0]

    def computed(self, limits: StepLimits, state: EngineState) -> None:
        """Keep limits that were computed and not applied, with the engine's state."""
        self._asked = limits, state

    def scheduled(self, sample: StepSample, engine: EngineLimits) -> None:
        """Count a scheduled step, if its limits were not applied."""
        if self._asked is None:
            return
        (limits, state), self._asked = self._asked, None
        starts, tokens = len(sample.started), sample.prefill_tokens
        room = max(limits.token_budget - engine.decode_tokens(sample.decodes, state.drafts), 0)
        held = max(starts - max(limits.max_running - state.running, 0), 0)
        for index, count in enumerate((starts, held, tokens, max(tokens - room, 0))):
            self._counted[index] += count

    @property
    def advised(self) -> Advised:
        """Counts since the engine started."""
        return Advised(*self._counted)
