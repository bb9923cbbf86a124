"""Which clock ends an answer, and that none of Ray's does it before."""

from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve._private import replica

from replicas.admission.asked import DEADLINE
from replicas.server.answer_clocks import AnswerClocks

HEADER, GATEWAY = b"x-request-timeout-seconds", b"x-envoy-expected-rq-timeout-ms"


@pytest.fixture
def rays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own methods are there again afterwards."""
    own = replica.Replica._parse_request_timeout
    monkeypatch.setattr(replica.Replica, "_parse_request_timeout", own)


@pytest.mark.parametrize(
    ("given_s", "headers", "after_s", "said"),
    [
        # A deadline to the first token is no clock over the answer.
        (None, {HEADER: b"3"}, None, ""),
        (12.0, {HEADER: b"3"}, 12.0, "12 s that it has by http_options.request_timeout_s"),
        # The gateway's route is the shorter one, or the longer one, or says nothing.
        (90.0, {GATEWAY: b"60000"}, 59.0, "60 s that it has by the gateway before it"),
        (9.0, {GATEWAY: b"60000"}, 9.0, "9 s that it has by http_options"),
        (None, {GATEWAY: b"0"}, None, ""),
        (None, {GATEWAY: b"soon"}, None, ""),
    ],
)
async def test_of_a_request_that_haproxy_sends_the_first_clock_is_named(
    rays: None,
    given_s: float | None,
    headers: dict[bytes, bytes],
    after_s: float | None,
    said: str,
) -> None:
    clocks = AnswerClocks(given_s)
    await clocks.replace_rays()
    clocks.behind_ray = True
    own: Any = SimpleNamespace(_http_options=SimpleNamespace(request_timeout_s=given_s))
    # As Ray's replica asks when such a request comes: no header counts, and ours is over before.
    given: Any = replica.Replica._parse_request_timeout(own, headers)
    assert given == (given_s and given_s + 3.0)
    limit = clocks.limit(headers)
    assert (limit and limit.after_s) == after_s
    assert said in (limit.said if limit else "")


@pytest.mark.parametrize(
    ("given_s", "headers", "after_s", "said"),
    [
        (12.0, {}, 11.0, "12 s that it has by http_options"),
        (
            12.0,
            {HEADER: b"2"},
            1.5,
            "2 s that it has by x-request-timeout-seconds, which Ray Serve",
        ),
        (12.0, {HEADER: b"0"}, None, ""),
        (None, {DEADLINE.encode(): b"2"}, None, ""),
    ],
)
def test_of_one_that_rays_proxy_sends_it_ends_before_the_proxy_cuts(
    given_s: float | None, headers: dict[bytes, bytes], after_s: float | None, said: str
) -> None:
    limit = AnswerClocks(given_s, behind_ray=True).limit(headers)
    assert (limit and limit.after_s) == after_s
    assert said in (limit.said if limit else "")
