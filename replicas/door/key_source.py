"""Keys from a file, which is read again if it changes, or from an environment variable."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from controller.data_file import read_text
from controller.errors import ConfigError
from replicas.door.keys import KeyRing, parse_keys
from replicas.door.settings import KeysFrom

LOOKS_EVERY_S = 1.0  # between two checks of the file
MOST_BYTES = 4 * 1024 * 1024

logger = logging.getLogger("ray.serve")

Stamp = tuple[int, int, int]


class KeySource:
    """The keys of one auth middleware.

    Raises:
        ConfigError: no key can be read, so no client would be admitted.
    """

    def __init__(self, config: KeysFrom, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._stamp = self._stamped()
        self._ring = read_keys(config)
        self._look_s = clock() + LOOKS_EVERY_S

    def ring(self) -> KeyRing:
        """The valid keys; if a changed file cannot be read, the previous ones."""
        if self._config.file is not None and self._clock() >= self._look_s:
            self._look_s = self._clock() + LOOKS_EVERY_S
            stamp = self._stamped()
            if stamp != self._stamp:
                self._stamp = stamp
                self._read_again()
        return self._ring

    def _read_again(self) -> None:
        try:
            ring = read_keys(self._config)
        except ConfigError as error:
            logger.error("The changed keys are refused, the keys before stay valid: %s", error)
            return
        before, now = ({key.name for key in r.keys} for r in (self._ring, ring))
        logger.info(
            "Keys were read again: %d; new: %s; gone: %s.",
            len(now),
            ", ".join(sorted(now - before)) or "none",
            ", ".join(sorted(before - now)) or "none",
        )
        self._ring = ring

    def _stamped(self) -> Stamp | None:
        if self._config.file is None:
            return None
        try:
            known = Path(self._config.file).stat()
        except OSError:
            return None
        return known.st_mtime_ns, known.st_size, known.st_ino


def read_keys(config: KeysFrom) -> KeyRing:
    """The keys of a ``keys`` block.

    Raises:
        ConfigError: they cannot be read; its message repeats nothing of the file.
    """
    if config.file is not None:
        path = Path(config.file)
        try:
            if path.stat().st_size > MOST_BYTES:
                raise ConfigError([f"{path}: larger than the {MOST_BYTES} bytes that are allowed"])
        except OSError as error:
            raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from None
        return parse_keys(read_text(path), str(path))
    assert config.env is not None
    text = os.environ.get(config.env)
    if text is None:
        raise ConfigError([f"environment variable {config.env}: is not set"])
    return parse_keys(text, f"environment variable {config.env}")
