"""What an entry may say of tracing, and the one line that each wrong word of it gets."""

from typing import Any

import pytest

from controller.errors import ConfigError
from serve_app.config import ray_llm_config
from serve_app.tracing import HTTP, PROTOCOL, tracing_problems

ENTRY = {"model_loading_config": {"model_id": "m", "model_source": "m"}}


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


def test_the_app_builder_refuses_it_too() -> None:
    with pytest.raises(ConfigError, match="otlp_traces_endpoint: 'nowhere at all' is not allowed"):
        ray_llm_config({**ENTRY, "engine_kwargs": {"otlp_traces_endpoint": "nowhere at all"}})
    known = {"otlp_traces_endpoint": "http://h:4317"}
    made = ray_llm_config({**ENTRY, "engine_kwargs": known})
    assert made["engine_kwargs"]["otlp_traces_endpoint"] == "http://h:4317"
