"""vLLM's EngineCore in this process, stepped by hand: no queues, no server, no other process.

It is the loop of vLLM's ``EngineCoreProc``; what reaches a client is taken when the core hands it
out.
"""

import time
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor.abstract import Executor
from vllm.v1.request import Request as EngineRequest

from benchmarks.live.served import Served
from simulator.workloads.requests import Request

TOKEN = 7  # prompts mean nothing: lengths are what takes time
NO_STOP = "never generated"  # a request with a stop string that is aborted counts as finished
IDLE_S = 0.01


class CoreEngine:
    """One engine core.

    Args:
        options: of vLLM's ``EngineArgs``; what is left out is as ``vllm serve`` has it.
    """

    def __init__(self, **options: Any) -> None:
        config = EngineArgs(**options).create_engine_config(UsageContext.OPENAI_API_SERVER)
        self.core = EngineCore(config, Executor.get_class(config), log_stats=False)
        self.scheduler: Any = self.core.scheduler
        self._number = 0

    def add(
        self, input_tokens: int, max_tokens: int | None, arrival_time: float | None = None
    ) -> str:
        """One request that may generate ``max_tokens`` (None: as many as it has room for).

        Nothing it generates ends it before, for prompts mean nothing: ``end`` does.

        Args:
            arrival_time: by ``time.time()``; None: now.
        """
        self._number += 1
        room = self.scheduler.max_model_len - input_tokens
        request = EngineRequest(
            str(self._number),
            [TOKEN] * input_tokens,
            SamplingParams(
                max_tokens=min(max_tokens or room, room),
                ignore_eos=True,
                temperature=0.0,
                stop=[NO_STOP],
            ),
            None,
            arrival_time=time.time() if arrival_time is None else arrival_time,
        )
        self.core.add_request(request, 0)
        return request.request_id

    def end(self, request_id: str) -> None:
        """It has generated all its tokens: what vLLM does where it meets a stop string."""
        self.core.abort_requests([request_id])

    def step(self) -> list[tuple[str, int, bool]]:
        """One step of the core: (request, new tokens, whether it ended) of what it handed out."""
        outputs, executed = self.core.step_fn()
        self.core.post_step(executed)
        generated = outputs.get(0) if outputs else None
        return (
            [(o.request_id, len(o.new_token_ids), o.finished) for o in generated.outputs]
            if generated
            else []
        )

    def busy(self) -> bool:
        """Whether anything runs, waits, or is on its way back."""
        queue = getattr(self.core, "batch_queue", None)
        return bool(self.scheduler.has_requests() or queue)

    def serve_all(
        self,
        requests: Sequence[Request],
        limit_s: float = np.inf,
    ) -> Served:
        """Serve requests as they come; return when all are served, or after ``limit_s``.

        Args:
            requests: in order of arrival.
        """
        numbers: dict[str, int] = {}
        first = np.full(len(requests), np.nan)
        last = np.full(len(requests), np.nan)
        tokens = np.zeros(len(requests), dtype=np.int64)
        # No tuple for each token: garbage collection would look at all of them, again and again.
        gap_s, gap_end_s, gap_request = array("d"), array("d"), array("q")
        due, start_s, start_wall_s = 0, time.perf_counter(), time.time()
        while due < len(requests) or self.busy():
            now_s = time.perf_counter() - start_s
            if now_s > limit_s:
                break
            while due < len(requests) and requests[due].arrival_s <= now_s:
                one = requests[due]
                came_s = start_wall_s + one.arrival_s
                numbers[self.add(one.input_tokens, one.max_tokens, came_s)] = due
                due += 1
            if not self.busy():
                time.sleep(min(requests[due].arrival_s - now_s, IDLE_S))
                continue
            for request_id, generated, over in self.step():
                now_s, number = time.perf_counter() - start_s, numbers[request_id]
                if generated and tokens[number]:
                    gap_s.append(now_s - last[number])
                    gap_end_s.append(now_s)
                    gap_request.append(number)
                elif generated:
                    first[number] = now_s
                last[number] = now_s
                tokens[number] += generated
                if not over and tokens[number] == requests[number].output_tokens:
                    self.end(request_id)
        took_s = time.perf_counter() - start_s
        return Served(
            np.array([r.arrival_s for r in requests]),
            first,
            last,
            tokens,
            np.array(gap_s, dtype=float),
            np.array(gap_end_s, dtype=float),
            np.array(gap_request, dtype=np.int64),
            took_s,
        )

    def clear(self) -> None:
        """Abort what is left."""
        if left := list(self.scheduler.requests):
            self.core.abort_requests(left)
        while self.busy():
            self.step()
