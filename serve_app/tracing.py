"""Checks an entry's tracing options: a wrong word stops an engine, or has no effect.

Spans go to vLLM's ``engine_kwargs.otlp_traces_endpoint``; ours go there too.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from controller.validation import shown

ENDPOINT = "otlp_traces_endpoint"
PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
GRPC, HTTP = "grpc", "http/protobuf"


def tracing_problems(
    engine_kwargs: Mapping[str, Any], env_vars: Mapping[str, Any], where: str
) -> list[str]:
    """Problems, one line each; empty if nothing is traced.

    Args:
        env_vars: of the replica's ``runtime_env``.
    """
    endpoint = engine_kwargs.get(ENDPOINT)
    if endpoint is None:
        return []
    found = []
    protocol = env_vars.get(PROTOCOL, GRPC)
    if protocol not in (GRPC, HTTP):
        found.append(
            f"{where}.runtime_env.env_vars.{PROTOCOL}: {shown(protocol)} is not allowed: vLLM knows"
            f" {GRPC!r} (the default) and {HTTP!r}"
        )
    elif not _is_address(endpoint, protocol):
        allowed = (
            "'http://HOST:4317'" if protocol == GRPC else "'http://HOST:4318/v1/traces', all of it"
        )
        found.append(
            f"{where}.engine_kwargs.{ENDPOINT}: {shown(endpoint)} is not allowed: by {protocol}"
            f" {allowed}"
        )
    if engine_kwargs.get("disable_log_stats"):
        found.append(
            f"{where}.engine_kwargs.disable_log_stats: True is not allowed with {ENDPOINT}: vLLM"
            " makes its spans of these numbers, and its engine would end with the first request"
        )
    return found


def _is_address(endpoint: Any, protocol: str) -> bool:
    if not isinstance(endpoint, str) or endpoint.split() != [endpoint]:
        return False
    try:
        url = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        known = bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        return False
    schemes = ("", "http", "https") if protocol == GRPC else ("http", "https")
    path = protocol == GRPC or url.path.strip("/") != ""
    return known and url.scheme in schemes and path
