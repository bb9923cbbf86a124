"""Clocks that end an answer early, and the error that its client gets.

Other clocks limit a whole answer: the operator's (``http_options.request_timeout_s``), Ray Serve's
proxy's if a request comes through it (without HAProxy, and until HAProxy knows the replica), and a
gateway's. Each would break off a stream silently.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

import ray
from ray.serve._private.http_util import (
    configure_http_options_with_defaults,
    parse_request_timeout_header,
)
from ray.serve._private.replica import Replica
from ray.serve.context import _get_global_client

from replicas.admission.asked import DEADLINE, TIMEOUT

EARLY_S = 1.0  # before another process cuts an answer; a quarter of a short time
LATER_S = 3.0  # after the operator's time Ray ends answers that still run
# Envoy's header with its route's timeout: an HTTPRoute's ``timeouts`` if Envoy is the gateway.
GATEWAY = "x-envoy-expected-rq-timeout-ms"


class Limit(NamedTuple):
    """Seconds from a request's arrival to the end of its answer, and the message then."""

    after_s: float
    said: str


# Whether this context's request came directly to the replica's server, not through Ray's proxy.
_direct: ContextVar[bool] = ContextVar("brimful_direct", default=False)


@dataclass
class AnswerClocks:
    """The clocks over the answers of one replica.

    Attributes:
        request_timeout_s: ``http_options.request_timeout_s``; None: none.
        behind_ray: whether Ray Serve calls the app.
    """

    request_timeout_s: float | None = None
    behind_ray: bool = False

    def limit(self, headers: Mapping[bytes, bytes]) -> Limit | None:
        """The clock that first ends the answer to this context's request; None: none.

        Args:
            headers: of the request, by lower-case name.
        """
        limits = []
        given_s, by = self.request_timeout_s, "http_options.request_timeout_s"
        proxied = self.behind_ray and not _direct.get()
        if proxied and TIMEOUT.encode() in headers:
            given_s = parse_request_timeout_header(dict(headers), given_s)
            by = f"{TIMEOUT}, which Ray Serve's proxy takes for the whole answer ({DEADLINE} is a"
            by += " deadline to the first token)"
        if given_s:
            limits.append(_limit(given_s, by, early=proxied))
        gateway = headers.get(GATEWAY.encode(), b"")
        if gateway.isdigit() and (gateway_s := int(gateway[:12]) / 1000):
            limits.append(_limit(gateway_s, f"the gateway before it ({GATEWAY})", early=True))
        return min(limits, default=None)

    async def replace_rays(self) -> None:
        """Make the replica of this process end answers by these clocks.

        Ray would cut answers, even at a client's deadline for the first token. Ray ends
        requests other than POST a little after the operator's time.
        """

        def later(replica: Any, headers: Any) -> float | None:
            _direct.set(True)
            given_s = replica._http_options.request_timeout_s
            return given_s and given_s + LATER_S

        Replica._parse_request_timeout = later
        if ray.is_initialized():
            options = await _get_global_client()._controller.get_http_config.remote()
            self.request_timeout_s = configure_http_options_with_defaults(options).request_timeout_s
            self.behind_ray = True


def _limit(given_s: float, by: str, *, early: bool) -> Limit:
    after_s = given_s - min(EARLY_S, given_s / 4) if early else given_s
    return Limit(after_s, f"the answer did not end within the {given_s:g} s that it has by {by}")
