"""Waiting requests that may start in the next step, in vLLM's order. Changes nothing.

They are in both queues (``vllm_queues``); a request that something of its own blocks is left out.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import Request, RequestStatus

from replicas.engine.request_facts import remotely_prefilled
from replicas.engine.vllm_queues import all_waiting, in_order

# States of requests that hold KV memory: it loads, or is loaded and the request found no slot yet,
# the last one after a preemption.
LOADING = (
    RequestStatus.WAITING_FOR_REMOTE_KVS,
    RequestStatus.WAITING,
    RequestStatus.PREEMPTED,
)


def may_start(scheduler: Any) -> Iterator[Request]:
    """Requests of both queues that vLLM can start now; lazily, in order."""
    if paused(scheduler):
        return
    loras = _loras(scheduler)
    for request in in_order(scheduler):
        if blocked(request, scheduler.finished_recving_kv_req_ids):
            continue
        if loras is not None and request.lora_request:
            one = request.lora_request.lora_int_id
            if one not in loras and len(loras) == scheduler.lora_config.max_loras:
                continue
            loras.add(one)
        yield request


def paused(scheduler: Any) -> bool:
    """Whether vLLM starts or runs no request: for new weights, or to sleep."""
    return bool(scheduler.pause_state != PauseState.UNPAUSED)


def prompt_backlog(scheduler: Any, found: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Tokens to compute before all requests here decode, and the KV memory that they take.

    Under their names in a report. The output of a preempted request is computed again, and counts.
    Prompts that another engine computed do not. Prefix hits of the first waiting requests are
    subtracted, and an equal share for the others.

    Args:
        found: as of ``BatchReader``.
    """
    left = [
        (r, r.num_tokens - r.num_computed_tokens)
        for r in all_waiting(scheduler)
        if not remotely_prefilled(r)
    ]
    waiting = max(sum(tokens for _, tokens in left), 0)
    new = waiting
    if found and waiting:
        first = [
            (found[r.request_id][0], n)
            for r, n in left
            if r.request_id in found and not r.num_computed_tokens
        ]
        cached = sum(tokens for tokens, _ in first)
        new -= round(waiting * cached / sum(n for _, n in first)) if cached else 0
    unfinished = (r.num_prompt_tokens - r.num_computed_tokens for r in scheduler.running)
    running = sum(tokens for tokens in unfinished if tokens > 0)
    return {"prompt_backlog_tokens": new + running, "kv_backlog_tokens": waiting + running}


def blocked(request: Request, loaded: Iterable[str]) -> bool:
    """Whether something of its own keeps a request from starting.

    Args:
        loaded: ids of requests whose KV has arrived.
    """
    status = request.status
    if status == RequestStatus.WAITING or status == RequestStatus.PREEMPTED:
        # Output from before its preemption is in flight; vLLM tells from 0.27 on.
        stale = getattr(request, "num_stale_output_tokens", 0)
        return stale > 0 and not getattr(request, "drop_stale_output", False)
    if status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
        asked = request.structured_output_request
        grammar = asked and asked._grammar  # the property waits 100 us if it is not ready
        if isinstance(grammar, Future):
            return not grammar.done() or grammar.exception() is not None
        return grammar is None or isinstance(grammar, Exception)
    return status != RequestStatus.WAITING_FOR_REMOTE_KVS or request.request_id not in loaded


def passed_over(request: Request) -> bool:
    """Whether vLLM passes a waiting request over, or its prompt is loaded and not computed here."""
    return remotely_prefilled(request) or blocked(request, ())


def _loras(scheduler: Any) -> set[int] | None:
    """The adapters of running requests; None: LoRA is off."""
    if not scheduler.lora_config:
        return None
    return {r.lora_request.lora_int_id for r in scheduler.running if r.lora_request}
