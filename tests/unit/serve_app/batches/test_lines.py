"""What a line of a batch file may be."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.batches.lines import LineError, read_line

CHAT = "/v1/chat/completions"
GOOD = {"custom_id": "a", "method": "POST", "url": CHAT, "body": {"model": "m"}}


def line(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def test_a_request_is_read_and_gets_the_class_that_it_does_not_name() -> None:
    assert read_line(line(), CHAT).body == {"model": "m"}
    assert read_line(line(), CHAT, "batch").body == {"model": "m", "service_tier": "batch"}
    own = line(body={"model": "m", "service_tier": "gold"})
    assert read_line(own, CHAT).body["service_tier"] == "gold"
    for none in ("auto", "default", None, "batch"):
        said = line(body={"model": "m", "service_tier": none})
        assert read_line(said, CHAT, "batch").body["service_tier"] == "batch"
    with pytest.raises(LineError, match=r"body\.service_tier: 'gold' is not allowed: batch"):
        read_line(own, CHAT, "batch")
    assert read_line(line(custom_id="a" * 512), CHAT).custom_id == "a" * 512
    without_method = {key: value for key, value in GOOD.items() if key != "method"}
    assert read_line(json.dumps(without_method).encode(), CHAT).custom_id == "a"


@pytest.mark.parametrize(
    ("text", "said", "custom_id"),
    [
        (b"{", "not JSON", None),
        (b"[" * 100_000, "not JSON", None),
        (b"\xff\xfe", "not JSON", None),
        (b"[1]", "not a JSON object", None),
        (line(custom_id=3), "custom_id", None),
        (line(custom_id=""), "custom_id", None),
        (line(method="GET"), "method: 'GET' is not allowed: POST", "a"),
        (line(url="/v1/completions"), f"url: '/v1/completions' is not allowed: {CHAT}", "a"),
        (line(body=[]), "body", "a"),
        (line(body={"stream": True}), "body.stream", "a"),
        (line(body={"background": True}), "body.background", "a"),
        (line(body={"priority": -5}), "body.priority", "a"),
        (line(body={"priority": 0}), "body.priority", "a"),
        (line(custom_id="a" * 513), "custom_id", None),
    ],
)
def test_what_is_no_request_is_named(text: bytes, said: str, custom_id: str | None) -> None:
    with pytest.raises(
        LineError, match="^" + said.replace(".", r"\.") if "'" in said else said
    ) as e:
        read_line(text, CHAT)
    assert e.value.custom_id == custom_id


@given(
    st.binary(max_size=60) | st.recursive(st.none() | st.text(), st.lists).map(str).map(str.encode)
)
def test_any_bytes_are_a_request_or_an_error(text: bytes) -> None:
    with contextlib.suppress(LineError):
        read_line(text, CHAT)
