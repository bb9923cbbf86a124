"""What an entry may say of tracing, and the one line that each wrong word of it gets."""

from typing import Any

import pytest

from serve_app.tracing import HTTP, PROTOCOL, tracing_problems


def places(env: dict[str, Any] | None = None, **engine: Any) -> list[str]:
    return [line.split(":")[0] for line in tracing_problems(engine, env or {}, "e")]


ENDPOINT = "e.engine_kwargs.otlp_traces_endpoint"
OVER_HTTP = {PROTOCOL: HTTP}


@pytest.mark.parametrize(
    ("endpoint", "env", "wrong"),
    [
        *[(one, {}, []) for one in ("http://h:4317", "https://h", "h:4317", "[::1]:4317")],
        *[
            (one, {}, [ENDPOINT])
            for one in ("", " ", "http://", "ftp://h:1", "http://h:port", "http://h :1", 4317, True)
        ],
        # Over HTTP the whole address is needed.
        ("http://h:4318/v1/traces", OVER_HTTP, []),
        *[
            (one, OVER_HTTP, [ENDPOINT])
            for one in ("http://h:4318", "http://h:4318/", "h:4318/v1/traces")
        ],
        # A protocol that vLLM does not know.
        ("http://h:1", {PROTOCOL: "http/json"}, [f"e.runtime_env.env_vars.{PROTOCOL}"]),
    ],
)
def test_an_address_of_a_collector(endpoint: Any, env: dict[str, str], wrong: list[str]) -> None:
    assert places(env, otlp_traces_endpoint=endpoint) == wrong


def test_spans_without_the_numbers_that_they_are_made_of_would_end_the_engine() -> None:
    found = places(otlp_traces_endpoint="http://h:1", disable_log_stats=True)
    assert found == ["e.engine_kwargs.disable_log_stats"]
    assert places(otlp_traces_endpoint="http://h:1", disable_log_stats=False) == []
    # Without an endpoint nothing is traced and nothing is wrong.
    assert places({PROTOCOL: "pigeon"}, disable_log_stats=True) == []
