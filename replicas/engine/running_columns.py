"""Token counts of the running requests as columns, of which most are kept from step to step.

What a request came with does not change while it runs: its prompt, the most it may generate, its
SLO. These are kept, and moved where requests come and go. What steps change (tokens computed
and generated) is read off vLLM's objects each time: it goes back where speculative tokens are
rejected, blocks are lost or their transfer failed, and counting along would have to know of all
that.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
from vllm.v1.request import Request

from controller.models.arrays import Ints
from controller.models.requests import Requests

FIRST_ROOM = 256
MOST_LEFT = 16  # that are taken out one by one; of more, all are read again
PROMPT, MOST, SLO_ID = range(3)  # the columns that are kept


class RunningColumns:
    """The running requests of one engine, as a struct of arrays.

    Args:
        slo_id_of: the id of a request's SLO, by its own; None: all have the same SLO.
    """

    def __init__(self, slo_id_of: Callable[[str], int] | None) -> None:
        self._slo_id_of = slo_id_of
        self._requests: list[Request] = []
        self._generated: list[list[int]] = []  # vLLM's own list of each, which it appends to
        self._left: list[Request] = []
        self._kept: Ints = np.zeros((3, FIRST_ROOM), dtype=np.int64)

    def leave(self, request: Request) -> None:
        """It is done, lost its KV blocks, or becomes another: a session with its next input."""
        if not self._requests:
            return
        self._left.append(request)
        if len(self._left) > MOST_LEFT:
            self.forget()

    def read(self, running: Sequence[Request], computed: Ints, shared: Ints | None) -> Requests:
        """Token counts of the running requests, in order.

        Args:
            computed, shared: as in ``Requests``.
        """
        n = len(running)
        if self._left or running != self._requests:
            self._follow(running)
        generated = np.fromiter(map(len, self._generated), np.int64, n)
        kept = self._kept
        return Requests(
            computed,
            kept[PROMPT, :n] + generated,
            generated,
            kept[MOST, :n] - generated,
            shared,
            None if self._slo_id_of is None else kept[SLO_ID, :n].copy(),
        )

    def _follow(self, running: Sequence[Request]) -> None:
        # vLLM keeps the order of those that stay, and appends those that come.
        for request in self._left:
            with suppress(ValueError):  # it came and left between two looks
                self._take_out(self._requests.index(request))
        self._left.clear()
        known = len(self._requests)
        if running[:known] != self._requests:  # decodes were put before prompts, or whatever else
            self.forget()
            known = 0
        self._append(running[known:])

    def _take_out(self, index: int) -> None:
        del self._requests[index], self._generated[index]
        end = len(self._requests)
        self._kept[:, index:end] = self._kept[:, index + 1 : end + 1]

    def _append(self, requests: Sequence[Request]) -> None:
        begin, end = len(self._requests), len(self._requests) + len(requests)
        while end > self._kept.shape[1]:
            self._kept = np.concatenate([self._kept, np.zeros_like(self._kept)], axis=1)
        self._requests += requests
        self._generated += [r._output_token_ids for r in requests]
        for index, one in enumerate(requests, begin):  # few, but for a look after hours
            self._kept[PROMPT, index] = one.num_prompt_tokens
            self._kept[MOST, index] = one.max_tokens
        if self._slo_id_of is not None:
            self._kept[SLO_ID, begin:end] = [self._slo_id_of(r.request_id) for r in requests]

    def forget(self) -> None:
        """Nobody runs: what ended is not to be held for the next look, which may be hours away."""
        self._requests.clear()
        self._generated.clear()
        self._left.clear()
