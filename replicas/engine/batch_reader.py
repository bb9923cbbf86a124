"""The batch as a policy in the engine asks for it, read off vLLM's scheduler, never changed."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from vllm.v1.request import Request, RequestStatus

from controller.models.arrays import Ints
from controller.models.requests import Requests
from controller.policies.base import Loads
from replicas.engine.by_class import ByClass
from replicas.engine.kv_holders import KvHolders
from replicas.engine.load_slots import loads_by_request, take_slots
from replicas.engine.prefix_sharing import PrefixSharing
from replicas.engine.request_facts import remotely_prefilled, token_counts
from replicas.engine.running_columns import RunningColumns
from replicas.engine.start_order import LOADING, blocked, may_start, passed_over
from replicas.engine.vllm_queues import skipped_requests


class BatchReader:
    """Reads the batch of one scheduler.

    Attributes:
        batch: token counts of the requests that ran at the last read.
        counts_loads: each KV transfer that begins in the step to come takes a slot of it.
        columns: token counts of the running requests; told of those that leave.
        holders: which requests hold which KV blocks.
        prefixes: which KV blocks they share.
    """

    def __init__(self, scheduler: Any, classes: ByClass) -> None:
        self._scheduler, self._classes = scheduler, classes
        manager, self._block_size = scheduler.kv_cache_manager, scheduler.block_size
        hash_tokens = getattr(scheduler, "hash_block_size", self._block_size)  # not in vLLM 0.25
        transfer = scheduler.vllm_config.kv_transfer_config
        loads = transfer is not None and transfer.is_kv_consumer
        self.prefixes = PrefixSharing(manager, hash_tokens, loads=loads)
        self.holders = KvHolders(manager)
        self._loads = loads
        # Of such a connector nothing comes for a request that does not say where from.
        kept = self.prefixes.enabled or not manager.enable_caching
        self._by_request = loads and kept and loads_by_request(transfer, scheduler.connector)
        if loads:
            take_slots(scheduler)
        self.counts_loads = False
        self.batch: Requests | None = None
        self._loading_ids: set[str] = set()
        self.columns = RunningColumns(classes.slo_id if classes.on else None)

    def running(
        self, requests: Sequence[Request], used_blocks: int
    ) -> tuple[Requests, Loads | None, int]:
        """Token counts of running requests, KV transfers, and the blocks that others hold alone.

        Args:
            used_blocks: KV blocks in use.
        """
        # For hundreds, every step: a list and one call into numpy cost half of an iterator.
        found = [r.num_computed_tokens for r in requests]
        computed = np.fromiter(found, np.int64, len(found))
        others, shared = self.holders.others(requests), None
        loads, ready = self._loading(others) if self._loads and others else ([], 0)
        self._loading_ids = {r.request_id for r in loads}
        if loads:
            others = [one for one in others if one not in self._loading_ids]
        elsewhere = self.holders.held_by(others) if others else 0
        # Where blocks are shared, fewer are used than all requests together fill; with several KV
        # cache groups each token fills a block of each.
        loaded = [r.num_computed_tokens for r in loads]
        fewer = (used_blocks - elsewhere) * self._block_size < sum(found) + sum(loaded)
        if self.prefixes.enabled and (fewer or self.prefixes.several):
            shared = np.array(self.prefixes.shared([*requests, *loads]), dtype=np.int64)
        n = len(found)
        kept = None if shared is None else shared[:n]
        self.batch = running = self.columns.read(requests, computed, kept)
        to_begin = self._to_begin() if self._by_request else 0
        if not loads:
            none = running.first(0)
            return running, Loads(none, 0, to_begin) if to_begin else None, elsewhere
        of_loads = None if shared is None else shared[n:].tolist()
        they = token_counts(loads, loaded, of_loads, self._classes.slo_ids(loads))
        return running, Loads(they, ready, to_begin), elsewhere

    def _to_begin(self) -> int:
        """How many that wait first have their KV transferred (``loads_first``)."""
        first = skipped_requests(self._scheduler, passed_over)
        return sum(r.status == RequestStatus.WAITING and remotely_prefilled(r) for r in first)

    def _loading(self, ids: Iterable[str]) -> tuple[list[Request], int]:
        """Requests whose KV has come, then those whose transfer goes on; how many the former are.

        One whose KV has come and that found no slot yet has the status of any that waits, but holds
        memory.
        """
        scheduler, known = self._scheduler, self._scheduler.requests
        loaded = scheduler.finished_recving_kv_req_ids
        waiting = [r for one in ids if (r := known.get(one)) and r.status in LOADING]
        ready = [r for r in waiting if not blocked(r, loaded)]
        return ready + [r for r in waiting if blocked(r, loaded)], len(ready)

    def waiting(self, running: Sequence[Request]) -> "WaitingReader":
        """Those that may start in the step to come, each looked at once."""
        return WaitingReader(self, running)

    def first_waiting(self, n: int) -> Requests:
        """The first n that may start.

        Where a prompt's cached part is unknown, ``computed`` is all but its last token. vLLM finds
        the cached part when it starts the request, and its token budget then limits how many start.
        """
        first = list(islice(self._may_start(), n))
        computed = [r.num_computed_tokens for r in first]
        prefixes, shared = self.prefixes, None
        if prefixes.enabled or any(computed):
            # What one of them holds already is part of what is held elsewhere.
            shared = computed.copy()
        if prefixes.enabled or prefixes.unknown:
            for index, request in enumerate(first):
                if computed[index]:
                    continue
                if shared is not None and prefixes.enabled:
                    computed[index], shared[index] = prefixes.found(request)
                if prefixes.unknown and not (self._by_request and not remotely_prefilled(request)):
                    computed[index] = request.num_tokens - 1
        return token_counts(first, computed, shared, self._classes.slo_ids(first))

    def _may_start(self) -> Iterator[Request]:
        """Those that may start, without KV transfers, which are part of the batch already."""
        first = may_start(self._scheduler)
        known = self._loading_ids
        return (r for r in first if r.request_id not in known) if known else first

    def before_prefix_wait(self, running: Sequence[Request], waiting: Requests) -> int:
        """How many of the first ones come before one whose next KV block another one computes."""
        if not self.prefixes.enabled or self.prefixes.unknown:
            return len(waiting)
        in_flight = self.prefixes.in_flight(running)
        for index, request in enumerate(islice(self._may_start(), len(waiting))):
            if self.prefixes.follows(request, in_flight):
                return index
            in_flight += self.prefixes.next_block(request, int(waiting.computed[index]))
        return len(waiting)


class WaitingReader:
    """Reads as many waiting requests as are asked for, and none twice.

    Args:
        running: vLLM's running requests.
    """

    def __init__(self, reader: BatchReader, running: Sequence[Request]) -> None:
        self._reader, self._running = reader, running
        self._asked = 0
        self._found: Requests | None = None

    def __call__(self, n: int) -> Requests:
        """The first n of them."""
        if self._found is None or n > self._asked:
            self._found, self._asked = self._reader.first_waiting(n), n
        return self._found if len(self._found) <= n else self._found.first(n)

    def before_prefix_wait(self, n: int) -> int:
        """How many of the first n come before one whose next KV block another one computes."""
        return self._reader.before_prefix_wait(self._running, self(n))

    def priorities(self, n: int) -> tuple[Ints, Ints]:
        """Priorities of the running requests, and of the first n waiting ones."""
        waiting = islice(self._reader._may_start(), n)
        return _priorities(self._running), _priorities(waiting)


def _priorities(requests: Iterable[Request]) -> Ints:
    return np.array([r.priority for r in requests], dtype=np.int64)
