"""Whatever is sent to the door or written into its files: an answer or an error of ours."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.errors import ConfigError
from replicas.admission.answers import BadRequestError
from replicas.door.auth import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.keys import parse_keys
from replicas.door.limits import bounded, check_fields
from replicas.door.settings import Limits, Security, parse_security
from tests.property.strategies import examples

KEY = "sk-0123456789abcdef"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
FIELDS = ("n", "max_tokens", "max_completion_tokens", "prompt", "input")
bodies = st.dictionaries(st.sampled_from(FIELDS), json_values)
limits = st.builds(
    Limits,
    max_sequences=st.integers(1, 10),
    max_tokens=st.none() | st.integers(1, 10),
)
headers = st.lists(
    st.tuples(
        st.sampled_from([b"authorization", b"Origin", b"content-type", b"content-length", b"x-y"])
        | st.binary(max_size=5),
        st.sampled_from([f"Bearer {KEY}".encode(), b"Bearer ", b"application/json", b"99999999"])
        | st.binary(max_size=30),
    ),
    max_size=5,
)
paths = st.sampled_from(["/v1/completions", "/v1/chat/completions", "/health", "/docs"]) | st.text()


@given(
    data=json_values
    | st.fixed_dictionaries({}, optional=dict.fromkeys(Security.model_fields, json_values))
)
def test_any_block_is_taken_or_refused_in_words(data: Any) -> None:
    try:
        parse_security(data)
    except ConfigError as error:
        assert all("security" in line for line in error.problems)


@given(text=st.text() | st.text(alphabet="keys:, #;=\n\tabc019") | json_values.map(json.dumps))
def test_any_text_is_keys_or_refused(text: str) -> None:
    try:
        assert parse_keys(text, "f").keys
    except ConfigError as error:
        assert all(line.startswith("f: ") for line in error.problems)


@given(where=st.integers(0, 60), noise=st.text(max_size=5))
def test_a_broken_file_never_shows_its_key(where: int, noise: str) -> None:
    good = f"alice {KEY} classes=a,b; bob {KEY}"
    try:
        parse_keys(good[:where] + noise + good[where:], "f")
    except ConfigError as error:
        assert KEY not in str(error)


@given(fields=bodies, limits=limits)
def test_a_body_that_passed_asks_for_no_more_than_it_may(fields: Any, limits: Limits) -> None:
    try:
        check_fields(fields, limits)
    except BadRequestError as error:
        assert error.answer.param in fields
        return
    for name, most in (("n", limits.max_sequences), ("max_tokens", limits.max_tokens)):
        value = fields.get(name)
        if most is not None and isinstance(value, int | float):
            assert not value > most
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses"):
        written = bounded(path, fields, limits)
        assert written is None or isinstance(json.loads(written), dict)


@examples(0.5)
@given(
    path=paths,
    method=st.sampled_from(["GET", "POST", "PUT", "OPTIONS", "BREW"]),
    sent=headers,
    chunks=st.lists(st.binary(max_size=40) | bodies.map(lambda b: json.dumps(b).encode())),
    leaves=st.booleans(),
    with_keys=st.booleans(),
)
async def test_any_request_gets_one_answer(
    path, method, sent, chunks, leaves, with_keys, tmp_path_factory
):
    file = tmp_path_factory.getbasetemp() / "keys"
    file.write_text(f"alice {KEY}")
    block = {"limits": {"max_body_mb": 0.0001, "max_tokens": 5}}
    if with_keys:
        block["keys"] = {"file": str(file)}
    door = Door(Rules(parse_security(block)))
    messages: list[Any] = [
        {"type": "http.request", "body": chunk, "more_body": index + 1 < len(chunks) or leaves}
        for index, chunk in enumerate(chunks)
    ]
    answered: list[int] = []

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answered.append(message["status"])

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})

    scope = {"type": "http", "method": method, "path": path, "headers": sent}
    await DoorMiddleware(app, door)(scope, receive, send)
    (status,) = answered
    assert status in (200, 400, 401, 404, 405, 413)
    if with_keys and status == 200 and path != "/health":
        assert [v for n, v in sent if n == b"authorization"]
    assert not door._inside
