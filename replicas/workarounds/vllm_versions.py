"""Which versions of vLLM were tested, and what to think of one that was not.

``docs/versions.md`` has the same table, by what ``make versions`` shows.
"""

import logging
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from replicas.workarounds.vllm_private import (
    ENGINE,
    Thing,
    attributes,
    imported,
    missing,
    number_of,
)
from replicas.workarounds.vllm_source import VllmSource

logger = logging.getLogger(__name__)

PAGE = "docs/versions.md"


class Tested(NamedTuple):
    """What was seen of one version.

    Args:
        engine: of the scheduler, wherever vLLM runs (``vllm serve``, ``vllm.LLM``).
        served: of the whole, in Ray Serve LLM 2.60.
    """

    release: str
    engine: str
    served: str


NO_RAY = "no: Ray Serve LLM 2.60 imports"
TESTED = (
    Tested(
        "0.25.0",
        "contract tests, and those of the queues and limits, on vLLM's scheduler without a model",
        f"{NO_RAY} `entrypoints.launchers.cli_args`, which is not there yet",
    ),
    Tested(
        "0.29.0", "all tests, with engines", "all tests, with clusters: the pair that is pinned"
    ),
    Tested(
        "0.33.0",
        "contract tests, and those of the queues and limits, on vLLM's scheduler without a model",
        f"{NO_RAY} `entrypoints.launchers.cli_args`, which has moved to `entrypoints.common`",
    ),
)
OLDEST, NEWEST = TESTED[0].release, TESTED[-1].release


class Doubt(NamedTuple):
    """A version that was not tested.

    Args:
        release: as vLLM calls itself.
        looked_for: how many private things.
        lacking: those that are not there, and where they may be now.
    """

    release: str
    looked_for: int
    lacking: tuple[str, ...]

    def __str__(self) -> str:
        said = f"vLLM {self.release} was not tested with this Brimful ({OLDEST} to {NEWEST} were):"
        if not self.lacking:
            return (
                f"{said} all {self.looked_for} private things of vLLM that control leans on are"
                " there, but limits are only computed and reported (as with batching.enforce:"
                " false). They are applied all the same by `brimful enforce on`, and without Ray by"
                f" `--additional-config.brimful.enforce on`. See {PAGE}."
            )
        return (
            f"{said} vLLM's own scheduler runs without control, as {len(self.lacking)} of"
            f" {self.looked_for} private things of vLLM were not found:"
            f" {'; '.join(self.lacking)}. See {PAGE}."
        )


def is_tested(release: str) -> bool:
    """Whether a version lies between the oldest and the newest; a patch release counts as its own.

    Args:
        release: as vLLM calls itself; one without a number is none.
    """
    return number_of(OLDEST) <= number_of(release) <= number_of(NEWEST)


def doubt_of(
    release: str, source: VllmSource, things: Iterable[Thing] | None = None
) -> Doubt | None:
    """What to think of a version; None: it was tested, and nothing is looked for.

    Args:
        things: that control leans on; None: all of the engine's side.
    """
    if is_tested(release):
        return None
    looked_for = [*attributes(), *imported(*ENGINE)] if things is None else list(things)
    return Doubt(release, len(looked_for), tuple(missing(looked_for, release, source)))


@cache
def installed_doubt() -> Doubt | None:
    """``doubt_of`` the vLLM of this process, which the log is told of once."""
    import vllm

    folder = Path(vllm.__file__ or "").parent
    doubt = doubt_of(vllm.__version__, VllmSource(folder))
    if doubt is not None:
        logger.warning("%s", doubt)
    return doubt
