"""A pytest plugin for vLLM's own tests: our scheduler stands where they look for vLLM's.

It is imported by its bare name: the package ``tests`` is vLLM's there.
"""

import os
from typing import Any

SETTING = "BRIMFUL_UPSTREAM"
PLAIN = "vllm"  # vLLM's own scheduler: what its tests come to on this machine
BLOCKS: dict[str, dict[str, Any]] = {
    "static": {"policy": "static"},
    "paper": {"policy": "paper"},
    "adaptive": {"policy": "adaptive"},
    "not-enforced": {"policy": "adaptive", "enforce": False},
}


def pytest_configure(config: Any) -> None:
    """Before vLLM's tests are imported."""
    for mark in ("cpu_test", "skip_global_cleanup", "optional", "slow_test", "core_model"):
        config.addinivalue_line("markers", mark)
    if (setting := os.environ[SETTING]) == PLAIN:
        return
    import vllm.v1.core.sched.async_scheduler as overlapped
    import vllm.v1.core.sched.scheduler as plain

    from replicas.engine.scheduler import DynamicBatchScheduler

    class InPlace(DynamicBatchScheduler):
        fails_open = False  # an error of our own fails a test
        overlaps = False  # one class of ours stands for both of vLLM's, and goes by the option

        def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
            vllm_config.additional_config = {"brimful": {"batching": BLOCKS[setting]}}
            vllm_config.scheduler_config.async_scheduling = self.overlaps  # off on a CPU
            super().__init__(vllm_config, *args, **kwargs)

    plain.Scheduler = InPlace
    overlapped.AsyncScheduler = type("Overlapping", (InPlace,), {"overlaps": True})
