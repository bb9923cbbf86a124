"""Which paths are served, and by which methods. Pure.

vLLM's app has some fifty routes; clients of OpenAI's API need these. Others compute without any key
of vLLM's (``/invocations``), change the engine (``/scale_elastic_ep``) or reveal its details
(``/metrics``, ``/version``, ``/docs``).
"""

import re
from collections.abc import Iterable

HEALTH = "/health"
PING = "/ping"  # SageMaker's name for health
ALWAYS = (
    f"GET {HEALTH}",
    f"GET {PING}",
    f"POST {PING}",
    "GET /v1/models",
    "GET /v1/models/*",
    "POST /v1/chat/completions",
    "POST /v1/completions",
    "POST /v1/embeddings",
    "POST /v1/responses",
)
# Routes of vLLM's other APIs and tools. They are closed, as they reveal the server or belong to
# other APIs than OpenAI's; the error names the key that opens them.
OPENED_BY_NAME = (
    "GET /metrics",
    "GET /version",
    "GET /load",
    "GET /server_info",
    "POST /tokenize",
    "POST /detokenize",
    "POST /v1/messages",
    "POST /v1/messages/count_tokens",
    "POST /v1/chat/completions/batch",
    "POST /v1/score",
    "POST /score",
    "POST /v1/rerank",
    "POST /v2/rerank",
    "POST /rerank",
    "POST /pooling",
    "POST /classify",
    "POST /v2/embed",
    "POST /v1/audio/transcriptions",
    "POST /v1/audio/translations",
    "POST /invocations",
    "POST /inference/v1/generate",
    "/v1/responses/*",
)
VLLMS_ALONE = ("/v1/responses", "/v1/messages", "/v1/messages/count_tokens")  # no route of Ray's
METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
ENTRY = re.compile(rf"(?:({'|'.join(METHODS)}) )?(/[!-~]*)")
BELOW = "/*"
NONE: frozenset[str] = frozenset()


def problem_of(entry: str) -> str | None:
    """The problem with an entry of ``extra_paths``; None: none."""
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
        extra: entries of ``extra_paths``, in addition to those always served.
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
        """Methods by which a path is served; empty if it is not.

        Args:
            path: as in the app's router: decoded, without the application's prefix.
        """
        known = self._exact.get(path, NONE)
        if path.endswith("/") and (whole := path.rstrip("/")):  # the app redirects it
            known = known | self._exact.get(whole, NONE)
        for prefix, methods in self._below.items():
            if path.startswith(prefix):
                known = known | methods  # it may be opened in two ways
        return known


_CLOSED = {entry.rpartition(" ")[2]: entry for entry in OPENED_BY_NAME}


def opener(path: str) -> str | None:
    """The entry of ``extra_paths`` that opens a path which vLLM serves; None if none is known.

    Args:
        path: see ``Paths.methods``.
    """
    whole = path.rstrip("/")
    above = f"{whole.rpartition('/')[0]}{BELOW}"
    return _CLOSED.get(whole) or _CLOSED.get(above)
