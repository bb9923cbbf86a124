"""Late tokens that the SLA's percentile allows, and that nothing has used."""

# Of what the percentile allows. Where every step is filled up to the SLA, the margin uses 0.7 of
# it (``margin.AIM``), so that this account is in debt there, and grants nothing.
SPENT = 0.5
# An account goes back this far, half a minute to a minute, and holds the tokens of 5 steps at most.
MEMORY_STEPS = 1024
# Where steps overlap, whether a step that was granted is late is seen one step later.
IN_FLIGHT = 2


class LateTokens:
    """How many tokens may be late now: an income from each token, less those that were late.

    At light load no step is near the SLA and the percentile allows late tokens all the same. A
    prompt computed at once, in one step, makes one token of each that decodes late and starts
    sooner than in chunks.

    Args:
        percentile: %, of the SLA.
    """

    def __init__(self, percentile: float) -> None:
        self._income = SPENT * (1 - percentile / 100)
        self._balance = self._income * MEMORY_STEPS  # as if one request had decoded all along
        self._granted = [0] * IN_FLIGHT  # tokens paid for before they were seen, newest first

    def observe(self, decodes: int, *, late: bool) -> None:
        """Count the tokens of a step."""
        self._balance -= self._balance / MEMORY_STEPS
        self._balance += decodes * self._income
        if late:
            for index in reversed(range(IN_FLIGHT)):
                paid = min(self._granted[index], decodes)
                self._granted[index] -= paid
                decodes -= paid
            self._balance -= decodes
        self._granted = [0, *self._granted[:-1]]

    def late_token(self) -> None:
        """One token was late for another reason than the size of its step."""
        self._balance -= 1

    def allows(self, decodes: int) -> bool:
        """Whether all of a step's tokens may be late."""
        return self._balance >= decodes

    def grant(self, decodes: int) -> None:
        """The tokens of the next step may be late."""
        self._balance -= decodes
        self._granted[0] += decodes
