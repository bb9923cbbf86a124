"""A load from another engine takes a slot of the step in which it begins."""

from typing import Any


def take_slots(scheduler: Any) -> None:
    """Have each load that begins in a step lower the step's cap by one.

    vLLM starts loads without counting them as running, as many as memory has room for. A policy
    that asks for the batch counts both (``Batch.loads``), and its cap is for both.
    """
    ask, cap = scheduler.connector.get_num_new_matched_tokens, scheduler._cap_name

    def matched(*args: Any, **kwargs: Any) -> Any:
        tokens, loads = found = ask(*args, **kwargs)
        if tokens and loads and scheduler._reader.batch is not None and scheduler.governor.enforced:
            setattr(scheduler, cap, getattr(scheduler, cap) - 1)
        return found

    scheduler.connector.get_num_new_matched_tokens = matched
