"""Reads vLLM's batch for the report and the limiter; changes nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from vllm.v1.request import Request, RequestStatus

from controller.models.arrays import Floats, Ints
from replicas.engine.load_slots import loads_by_request, take_slots
from replicas.engine.prefix_sharing import PrefixSharing
from replicas.engine.request_facts import remotely_prefilled
from replicas.engine.start_order import LOADING, blocked, may_start, passed_over
from replicas.engine.vllm_queues import skipped_requests

GROUPS = 64  # groups of similar requests in a report, at most
QUEUED = 64  # waiting requests in a report, at most; a prompt has some ten blocks


class BatchReader:
    """Reads the batch of one scheduler.

    Attributes:
        counts_loads: whether a KV transfer takes a slot of the step in which it begins.
        prefixes: the KV blocks that requests share.
        found: ``PrefixSharing.found`` of the first waiting requests at the last ``tables``, by id.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        manager, self._block_size = scheduler.kv_cache_manager, scheduler.block_size
        hash_tokens = getattr(scheduler, "hash_block_size", self._block_size)  # not in vLLM 0.25
        transfer = scheduler.vllm_config.kv_transfer_config
        loads = transfer is not None and transfer.is_kv_consumer
        self.prefixes = PrefixSharing(manager, hash_tokens, loads=loads)
        managers = manager.coordinator.single_type_managers
        self._blocks: Mapping[str, Any] = managers[0].req_to_blocks if managers else {}
        self._loads = loads
        # Such a connector loads nothing for a request that names no source.
        kept = self.prefixes.enabled or not manager.enable_caching
        self._by_request = loads and kept and loads_by_request(transfer, scheduler.connector)
        if loads:
            take_slots(scheduler)
        self.counts_loads = False
        self.found: dict[str, tuple[int, int]] = {}
        self._loading_ids: set[str] = set()

    def loads(self, running: Sequence[Request]) -> tuple[int, int, int]:
        """Requests with a slot for their KV transfer, of these those with their KV here, and
        requests whose transfer is yet to begin."""
        if not self._loads:
            return 0, 0, 0
        held = self.others(running)
        loading, ready = self._loading(held) if held else ([], 0)
        self._loading_ids = {r.request_id for r in loading}
        return len(loading), ready, self._to_begin() if self._by_request else 0

    def others(self, running: Sequence[Request]) -> list[str]:
        """Ids of the requests that hold KV blocks without running.

        They have a KV transfer, wait for their start, wait for input (sessions), or have ended
        while a connector still reads their blocks.
        """
        if len(self._blocks) <= len(running):
            return []  # the usual case, without a loop over requests
        run = {r.request_id for r in running}
        return [one for one in self._blocks if one not in run]

    def _to_begin(self) -> int:
        """First requests in the queue whose KV transfer is yet to begin (``loads_first``)."""
        first = skipped_requests(self._scheduler, passed_over)
        return sum(r.status == RequestStatus.WAITING and remotely_prefilled(r) for r in first)

    def _loading(self, ids: Iterable[str]) -> tuple[list[Request], int]:
        """Requests whose KV transfer goes on or is complete; the number of the complete ones.

        A request whose KV is here and that found no slot has the status of a waiting one, but holds
        memory.
        """
        scheduler, known = self._scheduler, self._scheduler.requests
        loaded = scheduler.finished_recving_kv_req_ids
        waiting = [r for one in ids if (r := known.get(one)) and r.status in LOADING]
        return waiting, sum(not blocked(r, loaded) for r in waiting)

    def tables(self, running: Sequence[Request]) -> tuple[Floats, Floats, Ints]:
        """The batch and the first requests that may start, as ``ReplicaReport.batch_table``.

        The batch has the running requests and those with a KV transfer. The third array has the
        tokens that each running request has generated, shape (n,).
        """
        here = list(running)
        if self._loading_ids:
            known = self._scheduler.requests
            here += [known[one] for one in self._loading_ids if one in known]
        held, age, left = _columns(here)
        generated = age[: len(running)]
        if self.prefixes.enabled:  # a shared prefix is counted once, separately
            held -= np.array(self.prefixes.shared(here), dtype=np.int64)
        batch = grouped(held + self._block_size, age, left)
        first = list(islice(self._may_start(), QUEUED))
        held, age, left = _columns(first)
        self.found = {}
        if self.prefixes.enabled:
            self.found = {r.request_id: self.prefixes.found(r) for r in first}
            held -= np.array([there for _, there in self.found.values()], dtype=np.int64)
        return batch, grouped(held + self._block_size, age, left, most=16), generated

    def first_waiting(self, n: int, prefilling: Sequence[Request]) -> Iterator[tuple[int, int]]:
        """Tokens to compute and KV tokens to take, one block more, of the first that may start.

        Args:
            prefilling: requests in prefill. If a waiting request shares the block that one of these
                computes, it and the requests behind it are left out: started now, they would
                compute one prefix several times.
        """
        prefixes, block = self.prefixes, self._block_size
        in_flight = prefixes.in_flight(prefilling) if prefixes.enabled and prefilling else []
        for request in may_start(self._scheduler):
            if request.request_id in self._loading_ids:
                continue  # part of the batch already
            if (n := n - 1) < 0:
                return
            tokens = request.num_tokens
            computed = held = request.num_computed_tokens
            if not computed:
                if prefixes.enabled:
                    if in_flight and prefixes.follows(request, in_flight):
                        return
                    computed, held = prefixes.found(request)
                if prefixes.unknown and not (self._by_request and not remotely_prefilled(request)):
                    computed = tokens - 1
            yield max(tokens - computed, 1), tokens - held + block

    def outranks(self) -> bool:
        """Whether vLLM would preempt a running request for the first that may start."""
        if self._scheduler.policy.value != "priority":
            return False
        first = next(self._may_start(), None)
        running = self._scheduler.running
        return first is not None and any(first.priority < r.priority for r in running)

    def _may_start(self) -> Iterator[Request]:
        """Requests that may start; KV transfers are left out, as they are part of the batch."""
        first = may_start(self._scheduler)
        known = self._loading_ids
        return (r for r in first if r.request_id not in known) if known else first


def _columns(requests: Sequence[Request]) -> tuple[Ints, Ints, Ints]:
    """Tokens of each request, those it generated, and those it may still generate; shape (n,)."""
    tokens = np.array([r.num_tokens for r in requests], dtype=np.int64)
    age = tokens - np.array([r.num_prompt_tokens for r in requests], dtype=np.int64)
    return tokens, age, np.array([r.max_tokens for r in requests], dtype=np.int64) - age


def grouped(held: Ints, age: Ints, left: Ints, most: int = GROUPS) -> Floats:
    """Groups of similar requests, shape (groups, 4), from columns of shape (n,).

    A group has the means of its requests, and the least ``left`` among them.
    """
    each, n = np.column_stack([held, age, left]).astype(float), len(held)
    if n <= most:
        return np.column_stack([each, np.ones(n)])
    order = np.lexsort((each[:, 1], np.log2(np.maximum(each[:, 2], 1)).astype(int)))
    starts = np.arange(most) * n // most
    each, counts = each[order], np.diff([*starts, n])
    means = np.add.reduceat(each, starts) / counts[:, None]
    means[:, 2] = np.minimum.reduceat(each[:, 2], starts)
    return np.column_stack([means, counts])
