"""Logs a problem once until it changes."""

import logging
import re

NUMBERS = re.compile(r"[0-9a-f]{8,}|\d+")


class Complaints:
    """Logs a problem if it differs from the last one, numbers aside."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._last: str | None = None

    def log(self, line: str, error: BaseException) -> None:
        """Log a problem; ``line`` has a placeholder for it."""
        said = f"{type(error).__name__}: {error}"
        plain = NUMBERS.sub("0", said)
        if plain != self._last:
            self._logger.warning(line, said)
        self._last = plain

    def over(self) -> None:
        """All is well: the last problem would be a new one."""
        self._last = None
