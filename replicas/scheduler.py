"""The scheduler class by its documented name (docs/standalone.md)."""

from replicas.engine.scheduler import DynamicBatchScheduler

__all__ = ["DynamicBatchScheduler"]
