"""Which paths are served, and by which methods. Pure.

vLLM's app has some fifty routes, of which a client of OpenAI's API needs these. Others compute for
whoever asks without any key of vLLM's (``/invocations``), change the engine (``/scale_elastic_ep``)
or tell about it (``/metrics``, ``/version``, ``/docs``).
"""

import re
from collections.abc import Iterable

HEALTH = "/health"
ALWAYS = (
    f"GET {HEALTH}",
    "GET /v1/models",
    "GET /v1/models/*",
    "POST /v1/chat/completions",
    "POST /v1/completions",
    "POST /v1/embeddings",
    "POST /v1/responses",
)
METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
ENTRY = re.compile(rf"(?:({'|'.join(METHODS)}) )?(/[!-~]*)")
BELOW = "/*"
NONE: frozenset[str] = frozenset()


def problem_of(entry: str) -> str | None:
    """What is wrong with an entry of ``extra_paths``; None: nothing."""
    found = ENTRY.fullmatch(entry)
    if found is None or "*" in found[2].removesuffix(BELOW):
        return (
            "a path ('/tokenize'), with a method before it ('POST /tokenize') or with all below it"
            f" ('/v1/audio{BELOW}'); methods: {', '.join(METHODS)}"
        )
    return None


class Paths:
    """The paths that are served.

    Args:
        extra: entries of ``extra_paths``, beside those that always are.
    """

    def __init__(self, extra: Iterable[str] = ()) -> None:
        self._exact: dict[str, frozenset[str]] = {}
        self._below: dict[str, frozenset[str]] = {}
        for entry in (*ALWAYS, *extra):
            method, _, path = entry.rpartition(" ")
            below = path.endswith(BELOW)
            held = self._below if below else self._exact
            place = path.removesuffix("*")
            held[place] = held.get(place, NONE) | ({method} if method else set(METHODS))

    def methods(self, path: str) -> frozenset[str]:
        """Those by which a path is served; none where it is not.

        Args:
            path: as the app's own router sees it: decoded, and without the application's prefix.
        """
        known = self._exact.get(path, NONE)
        for prefix, methods in self._below.items():
            if path.startswith(prefix):
                known = known | methods  # of a path that is opened in two ways
        return known
