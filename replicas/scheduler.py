"""The scheduler class by its documented name (docs/standalone.md)."""

from typing import TYPE_CHECKING

from replicas.workarounds.vllm_versions import installed_doubt

if TYPE_CHECKING:
    from replicas.engine.scheduler import DynamicBatchScheduler
elif (doubt := installed_doubt()) is not None and doubt.lacking:
    from replicas.engine.bystander import Bystander as DynamicBatchScheduler
else:
    from replicas.engine.scheduler import DynamicBatchScheduler

__all__ = ["DynamicBatchScheduler"]
