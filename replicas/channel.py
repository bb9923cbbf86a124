"""Reports and limits by their documented names (docs/standalone.md)."""

from replicas.engine.channel import exchange, read_report

__all__ = ["exchange", "read_report"]
