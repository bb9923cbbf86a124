"""What an entry may say of tracing, and the one line that each wrong word of it gets."""

from typing import Any

import pytest

from controller.errors import ConfigError
from serve_app.config import ray_llm_config
from serve_app.tracing import HTTP, PROTOCOL, tracing_problems

ENTRY = {"model_loading_config": {"model_id": "m", "model_source": "m"}}


def places(env: dict[str, Any] | None = None, **engine: Any) -> list[str]:
    return [line.split(":")[0] for line in tracing_problems(engine, env or {}, "e")]


@pytest.mark.parametrize("endpoint", ["http://h:4317", "https://h", "h:4317", "[::1]:4317"])
def test_an_address_of_a_collector_by_grpc(endpoint: str) -> None:
    assert places(otlp_traces_endpoint=endpoint) == []


def test_over_http_the_whole_address_is_needed() -> None:
    over_http = {PROTOCOL: HTTP}
    assert places(over_http, otlp_traces_endpoint="http://h:4318/v1/traces") == []
    for short in ("http://h:4318", "http://h:4318/", "h:4318/v1/traces"):
        assert places(over_http, otlp_traces_endpoint=short) == [
            "e.engine_kwargs.otlp_traces_endpoint"
        ]


@pytest.mark.parametrize(
    "endpoint", ["", " ", "http://", "ftp://h:1", "http://h:port", "http://h :1", 4317, True]
)
def test_what_is_no_address_is_refused(endpoint: Any) -> None:
    assert places(otlp_traces_endpoint=endpoint) == ["e.engine_kwargs.otlp_traces_endpoint"]


def test_a_protocol_that_vllm_does_not_know_is_refused() -> None:
    assert places({PROTOCOL: "http/json"}, otlp_traces_endpoint="http://h:1") == [
        f"e.runtime_env.env_vars.{PROTOCOL}"
    ]


def test_without_an_endpoint_nothing_is_traced_and_nothing_is_wrong() -> None:
    assert places({PROTOCOL: "pigeon"}, disable_log_stats=True) == []


def test_spans_without_the_numbers_that_they_are_made_of_would_end_the_engine() -> None:
    found = places(otlp_traces_endpoint="http://h:1", disable_log_stats=True)
    assert found == ["e.engine_kwargs.disable_log_stats"]
    assert places(otlp_traces_endpoint="http://h:1", disable_log_stats=False) == []


def test_the_app_builder_refuses_it_too() -> None:
    with pytest.raises(ConfigError, match="otlp_traces_endpoint: 'nowhere at all' is not allowed"):
        ray_llm_config({**ENTRY, "engine_kwargs": {"otlp_traces_endpoint": "nowhere at all"}})
    known = {"otlp_traces_endpoint": "http://h:4317"}
    made = ray_llm_config({**ENTRY, "engine_kwargs": known})
    assert made["engine_kwargs"]["otlp_traces_endpoint"] == "http://h:4317"
