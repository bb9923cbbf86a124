"""The span exporter by its documented name (docs/tracing.md)."""

from replicas.server.otlp import exporter

__all__ = ["exporter"]
