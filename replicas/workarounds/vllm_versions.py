"""Which versions of vLLM were tested, and what is said of one that was not (docs/versions.md)."""

import logging
import re
import sys
from functools import cache

Number = tuple[int, int]

OLDEST, NEWEST = "0.25.0", "0.33.0"
logger = logging.getLogger(__name__)


def number_of(release: str) -> Number:
    """The first two numbers of a version; one without any is newer than all others."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (sys.maxsize, 0) if found is None else (int(found[1]), int(found[2]))


def is_tested(release: str) -> bool:
    """Whether a version lies between the oldest and the newest; a patch release counts as its own.

    Args:
        release: as vLLM calls itself; one without a number is none.
    """
    return number_of(OLDEST) <= number_of(release) <= number_of(NEWEST)


@cache
def installed_is_tested() -> bool:
    """``is_tested`` of the vLLM of this process; the log has it once if not."""
    import vllm

    tested = is_tested(vllm.__version__)
    if not tested:
        logger.warning(
            "vLLM %s was not tested with this Brimful (%s to %s were): limits are only computed and"
            " reported (as with batching.enforce: false). They are applied all the same by `brimful"
            " enforce on`, and without Ray by `--additional-config.brimful.enforce on`. See"
            " docs/versions.md.",
            vllm.__version__,
            OLDEST,
            NEWEST,
        )
    return tested
