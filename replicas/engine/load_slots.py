"""A KV transfer from another engine takes a slot of the step in which it begins."""

from typing import Any

BY_REQUEST = ("NixlConnector",)


def loads_by_request(transfer: Any, connector: Any) -> bool:
    """Whether a connector transfers only what a request's ``kv_transfer_params`` ask for.

    Others look every prompt up in a store.

    Args:
        transfer: vLLM's ``KVTransferConfig``.
    """
    return transfer.kv_connector in BY_REQUEST or bool(
        getattr(connector, "loads_by_request", False)
    )


def take_slots(scheduler: Any) -> None:
    """Make each KV transfer lower the cap of the step in which it begins by 1, if transfers count.

    vLLM starts transfers without counting them as running, as many as memory holds. The connector
    may offer a transfer and vLLM still prefill here. Only an allocated request has its KV
    transferred, so the slot is taken at allocation.
    """
    connector, cap, loads = scheduler.connector, scheduler._cap_name, False
    ask, notify = connector.get_num_new_matched_tokens, connector.update_state_after_alloc

    def asked(*args: Any, **kwargs: Any) -> Any:
        nonlocal loads
        found = ask(*args, **kwargs)
        loads = bool(found[1])
        return found

    def allocated(request: Any, blocks: Any, tokens: int, *args: Any, **kwargs: Any) -> Any:
        if loads and tokens and scheduler._reader.counts_loads:
            setattr(scheduler, cap, getattr(scheduler, cap) - 1)
        return notify(request, blocks, tokens, *args, **kwargs)

    connector.get_num_new_matched_tokens = asked
    connector.update_state_after_alloc = allocated
