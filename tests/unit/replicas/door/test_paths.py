"""Which paths are served, by which methods, and what may be opened beside them."""

import re
from typing import Any

import pytest

from controller.errors import ConfigError
from replicas.admission.answers import RefusedError
from replicas.door.door import Door, Rules
from replicas.door.paths import METHODS, Paths, opener
from replicas.door.settings import parse_security


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/health", {"GET"}),
        ("/ping", {"GET", "POST"}),
        ("/v1/models", {"GET"}),
        ("/v1/models/meta-llama/Llama-3", {"GET"}),
        ("/v1/chat/completions", {"POST"}),
        ("/v1/completions", {"POST"}),
        ("/v1/embeddings", {"POST"}),
        ("/v1/responses", {"POST"}),
        ("/v1/responses/resp_1", set()),
        ("/v1/chat/completions/render", set()),
        ("/v1/modelsx", set()),
        ("/v1/completions/", {"POST"}),  # which the app redirects
        ("/tokenize/", set()),
        ("/V1/completions", set()),
        ("//v1/completions", set()),
        ("/", set()),
        ("", set()),
        ("/invocations", set()),
        ("/tokenize", set()),
        ("/scale_elastic_ep", set()),
        ("/docs", set()),
        ("/metrics", set()),
        ("/version", set()),
        ("/load", set()),
    ],
)
def test_what_a_client_of_openais_api_needs_is_served_and_nothing_else(path, methods) -> None:
    assert Paths().methods(path) == methods


def test_more_is_served_where_it_was_asked_for() -> None:
    paths = Paths(["/tokenize", "GET /metrics", "POST /v1/audio/*", "DELETE /v1/models"])
    assert paths.methods("/tokenize") == set(METHODS)
    assert paths.methods("/tokenize/x") == set()
    assert paths.methods("/metrics") == {"GET"}
    assert paths.methods("/v1/audio/transcriptions") == {"POST"}
    assert paths.methods("/v1/audio") == set()
    assert paths.methods("/v1/models") == {"GET", "DELETE"}
    assert Paths(["/*"]).methods("/anything") == set(METHODS)


@pytest.mark.parametrize(
    "wrong", ["", "tokenize", "post /tokenize", "POST  /x", "FETCH /x", "/a*", "/*/a", "/a b", "/ä"]
)
def test_what_is_no_path_is_named(wrong: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_security({"extra_paths": ["/tokenize", wrong]}, "args.security")
    (line,) = refused.value.problems
    assert line.startswith("args.security.extra_paths: ['/tokenize', ")
    assert f"is not allowed: {wrong!r}: a path ('/tokenize'), with a method" in line


@pytest.mark.parametrize(
    ("path", "entry"),
    [
        ("/metrics", "GET /metrics"),
        ("/metrics/", "GET /metrics"),
        ("/version", "GET /version"),
        ("/tokenize", "POST /tokenize"),
        ("/v1/messages", "POST /v1/messages"),
        ("/v1/responses/resp_1", "/v1/responses/*"),
        ("/scale_elastic_ep", None),
        ("/collective_rpc", None),
        ("/v1", None),
        ("/", None),
    ],
)
def test_a_closed_path_is_named_with_what_opens_it(path: str, entry: str | None) -> None:
    assert opener(path) == entry
    if entry is not None:
        assert Paths([entry]).methods(path)
        door = Door(Rules(parse_security({})))
        with pytest.raises(RefusedError, match=f"extra_paths: .{re.escape(entry)}.*opens it"):
            door.enter({"type": "http", "path": path, "method": "GET", "headers": []})


@pytest.mark.parametrize(("path", "hinted"), [("/tokenize/", True), ("/metrics", False)])
def test_no_entry_is_named_for_a_path_that_the_app_behind_has_not(path: str, hinted: bool) -> None:
    door = Door(Rules(parse_security({})))
    door.served = frozenset({"/tokenize"})
    with pytest.raises(RefusedError) as refused:
        door.enter({"type": "http", "path": path, "method": "POST", "headers": []})
    assert ("extra_paths" in str(refused.value)) == hinted


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/messages/count_tokens"])
def test_what_rays_ingress_has_no_route_for_is_a_404_that_says_where_it_is(path: str) -> None:
    door = Door(Rules(parse_security({"extra_paths": ["/v1/messages", "/v1/messages/*"]})))
    asked: Any = {"type": "http", "path": path, "method": "POST", "headers": []}
    door.enter(dict(asked))  # behind vLLM's own app
    door.served = frozenset({"/v1/models"})
    with pytest.raises(RefusedError, match="no such route, direct streaming has it") as refused:
        door.enter(asked)
    assert refused.value.answer.status == 404


def test_an_unknown_key_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="security: unknown key 'extra_path'; did you mean 'ext"):
        parse_security({"extra_path": []})
    assert parse_security(None) == parse_security({})
