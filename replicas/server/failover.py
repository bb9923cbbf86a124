"""If an engine dies, another replica's engine continues its answers.

The requests move below vLLM's output processor, which outlives the engine in the server's process.
It keeps its state of a request (text, stop strings, logprobs, siblings of ``n``, usage) and gets
the outputs of another engine as if they were this one's. While the engine lives, a request costs
one reference to its engine request, and a token costs nothing.
"""

import asyncio
import contextlib
import copy
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.stats import IterationStats

from replicas.admission.asked import NO_FAILOVER
from replicas.admission.gate import ends_with_engine
from replicas.engine.settings import FailoverConfig
from replicas.server.carried import Accepted, Moved

logger = logging.getLogger("ray.serve")

MOST_MOVES = 2
# An engine that dies this soon after a request's token may have died of that request.
KILLS_WITHIN_S = 1.0
RETRY_S = 0.1  # until another replica is asked to take a request
TOLD_S = 10.0  # between the death of an engine and its last output, at most
LOOK_S = 1.0  # between two looks at whether the engine answers
OURS = "brimful_"  # utility calls of ``replicas.engine.channel``
# Parameters that count generated tokens: vLLM's first model runner accepts no generated tokens.
COUNTED = (
    *("presence_penalty", "frequency_penalty", "bad_words", "thinking_token_budget"),
    *("repetition_detection", "trace_decode_token_ids"),
)


class NotMovedError(EngineDeadError):
    """The engine died, and no other engine continues this request."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.args = (f"The engine of this answer died, and no other engine continued it: {why}.",)


class Failover:
    """The requests of one replica's engine, in case it dies.

    Args:
        client: vLLM's ``AsyncLLM``.
        replica: this replica's unique id.
        call: asks another replica to continue (``Carried.carry_on``).
        others: how many other replicas there are.

    Attributes:
        ended: requests that ended with an error, by reason.
        gaps_s: of moved requests, from the death to the next token, seconds.
    """

    def __init__(
        self,
        client: Any,
        config: FailoverConfig,
        replica: str,
        call: Callable[[Moved], AsyncGenerator[Any, None]],
        others: Callable[[], Awaitable[int]],
    ) -> None:
        self._client, self._config, self._replica = client, config, replica
        self._call, self._others = call, others
        self._moving: dict[str, asyncio.Task[None]] = {}
        self._died = asyncio.Event()
        self._died_s = 0.0
        self._calls = 0  # utility calls of others, which may take long: a profile, new weights
        self.ended: Counter[str] = Counter()
        self.gaps_s: list[float] = []
        self._guard(client.output_processor, client.engine_core)

    def _guard(self, processor: Any, core: Any) -> None:
        add, abort, send = processor.add_request, processor.abort_requests, core.add_request_async
        call = core.call_utility_async

        def added(request: Any, *args: Any, **options: Any) -> None:
            add(request, *args, **options)
            state = processor.request_states.get(request.request_id)
            if state is not None and not hasattr(state, "brimful_sent"):  # else a session's input
                why = self._never_moves(request)
                state.brimful_sent = (None, why) if why else (request, None)

        async def sent(request: Any) -> None:
            try:
                await send(request)
            except EngineDeadError:  # since it was added
                if request.request_id not in processor.request_states:
                    raise
                if self._died.is_set():  # else ``propagate_error`` is about to be called
                    self._lost(request.request_id)

        async def called(method: str, *args: Any) -> Any:
            others = not method.startswith(OURS)
            self._calls += others
            try:
                return await call(method, *args)
            finally:
                self._calls -= others

        def aborted(ids: Any, *args: Any, **options: Any) -> Any:
            gone = abort(ids, *args, **options)
            for one in gone:
                if (task := self._moving.pop(one, None)) is not None:
                    task.cancel()
            return gone

        def failed(error: Exception) -> None:
            self._died_s = time.monotonic()
            self._died.set()
            for one in list(processor.request_states):
                self._lost(one)

        processor.add_request, processor.abort_requests = added, aborted
        processor.propagate_error, core.add_request_async = failed, sent
        core.call_utility_async = called

    def so_far(self) -> dict[str, Any]:
        """Outcomes of the dead engine's requests: counts by outcome, seconds without tokens."""
        counts = {"moved": len(self.gaps_s), "moving": len(self._moving), **self.ended}
        return {"outcomes": counts, "gap_s": sum(self.gaps_s)}

    def _never_moves(self, request: Any) -> str | None:
        """Why a request must end with its engine, by the request alone; None: it may move."""
        params = request.sampling_params
        if ends_with_engine.get():
            return f"its client asked for that by {NO_FAILOVER[0].decode()}"
        if params is None:
            return "it asks for no generated text"
        if request.resumable or request.prompt_token_ids is None or request.prompt_embeds:
            return "its prompt is not a list of tokens"
        if request.mm_features and (
            self._client.renderer.mm_processor_cache is not None
            or any(one.data is None for one in request.mm_features)
        ):
            return "its images, audio or video are lost"
        kv = (params.extra_args or {}).get("kv_transfer_params") or {}
        return "its prompt is for another engine" if kv.get("do_remote_decode") else None

    def _cannot_resume(self, request: Any) -> str | None:
        """Why a request that has generated tokens cannot go on elsewhere."""
        config, params = self._client.vllm_config, request.sampling_params
        if getattr(config.model_config, "enable_return_routed_experts", False):
            return "the routed experts of its tokens are lost"
        if not getattr(config, "use_v2_model_runner", False):
            if counted := [name for name in COUNTED if getattr(params, name, None)]:
                return f"{', '.join(counted)} cannot be continued by vLLM's first model runner"
            if config.model_config.logits_processors:
                return "logits processors cannot be continued by vLLM's first model runner"
        reasons = config.structured_outputs_config
        begun = request.reasoning_ended or reasons.enable_in_reasoning
        if params.structured_outputs and reasons.reasoning_parser and not begun:
            return "the beginning of its grammar after the reasoning is unknown"
        return None

    def _lost(self, request_id: str) -> None:
        state = self._client.output_processor.request_states.get(request_id)
        if state is None or request_id in self._moving:  # it has ended with a sibling, or moves
            return
        request, why = state.brimful_sent
        if why is None and state.detokenizer.output_token_ids:
            why = self._cannot_resume(request)
        if why is not None:
            self._end(request_id, "cannot", why)
            return
        task = asyncio.create_task(self._move(request_id, state, request))
        self._moving[request_id] = task
        task.add_done_callback(lambda done: self._moved_on(request_id, done))

    def _moved_on(self, request_id: str, task: asyncio.Task[None]) -> None:
        self._moving.pop(request_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Request %s could not be moved.", request_id, exc_info=error)
            self._end(request_id, "failed", "moving it failed")

    async def _move(self, request_id: str, state: Any, request: Any) -> None:
        if not await self._others():
            self._end(request_id, "alone", "there is no other replica")
            return
        avoid, moves, kills = [self._replica], 0, 1
        lost_s, told_s = self._died_s, self._died_s
        while True:
            came = accepted = False
            answer = self._call(self._moved(state, request, avoid))
            try:
                while True:
                    left_s = lost_s + self._config.wait_s - time.monotonic()
                    item = await asyncio.wait_for(anext(answer), None if came else left_s)
                    if isinstance(item, Accepted):
                        if item.refused is not None:
                            self._end(request_id, "cannot", item.refused)
                            return
                        accepted, moves = True, moves + 1
                        avoid.append(item.replica)
                        continue
                    told_s = time.monotonic()
                    if not came:
                        came = True
                        self.gaps_s.append(told_s - lost_s)
                    if self._take(request_id, item):
                        return
            except TimeoutError:
                said = f"no token of another replica came within {self._config.wait_s:g} s"
                self._end(request_id, "waited", said)
                return
            except Exception as error:  # after any error that replica does not continue it
                if accepted:
                    logger.warning("Request %s was not continued: %r", request_id, error)
            finally:
                await answer.aclose()
            if not accepted:
                await asyncio.sleep(RETRY_S)
                continue
            now_s = time.monotonic()
            kills += now_s - told_s < KILLS_WITHIN_S or not came
            lost_s = now_s
            if moves == MOST_MOVES:
                if kills > MOST_MOVES:
                    logger.error("Request %s is given up: it may kill engines.", request_id)
                self._end(request_id, "moved_out", f"{moves} other engines died, too")
                return

    def _moved(self, state: Any, request: Any, avoid: list[str]) -> Moved:
        """The request as another engine gets it."""
        own = list(state.detokenizer.output_token_ids)
        request, params = copy.copy(request), copy.copy(request.sampling_params)
        request.sampling_params, request.data_parallel_rank = params, None
        request.prompt_token_ids = [*request.prompt_token_ids, *own]
        extra = dict(params.extra_args or {})
        extra.pop("kv_transfer_params", None)  # KV that was loaded once is computed now
        params.extra_args = extra or None
        if own:
            params.prompt_logprobs = None  # they came with the first token
        if own and not getattr(self._client.vllm_config, "use_v2_model_runner", False):
            params.max_tokens -= len(own)
            params.min_tokens = max(params.min_tokens - len(own), 0)
            if params.seed is not None:  # else the first draws would be drawn again
                params.seed += len(own)
        return Moved(request, len(own), tuple(avoid))

    def _take(self, request_id: str, outputs: list[Any]) -> bool:
        """Process another engine's outputs; returns whether the request is over."""
        client = self._client
        stats = IterationStats() if client.log_stats else None
        client.output_processor.process_outputs(outputs, time.monotonic(), stats)
        if client.logger_manager is not None:
            client.logger_manager.record(scheduler_stats=None, iteration_stats=stats)
        return request_id not in client.output_processor.request_states

    def _end(self, request_id: str, reason: str, why: str) -> None:
        """End a request with an error, and its siblings of the same ``n``."""
        states = self._client.output_processor.request_states
        if (state := states.get(request_id)) is None:
            return
        self.ended[reason] += 1
        state.queue.put(NotMovedError(why))
        for one in [name for name, other in states.items() if other.queue is state.queue]:
            del states[one]
            task = self._moving.pop(one, None)
            if task is not None and task is not asyncio.current_task():
                task.cancel()

    async def watch(self, silent_s: Callable[[], float], carries: Callable[[], int]) -> None:
        """Kill an engine that has requests and answers nothing for too long.

        Args:
            silent_s: how long it has owed an answer.
            carries: how many requests of other replicas it continues.
        """
        looks = 0  # two reads: this process itself may have been paused
        while self._config.hang_s is not None and not self._died.is_set():
            await asyncio.sleep(LOOK_S)
            asked = self._client.output_processor.request_states or carries()
            silent = asked and not self._calls and silent_s() > self._config.hang_s
            looks = looks + 1 if silent else 0
            if looks == 2:
                logger.error("The engine answered nothing for %.0f s, and is killed.", silent_s())
                manager = self._client.engine_core.resources.engine_manager
                for process in getattr(manager, "processes", ()):
                    process.kill()

    async def told(self) -> bool:
        """Whether the engine has died; a removed replica ends its own engine."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._died.wait(), TOLD_S)
        return self._died.is_set()

    async def relayed(self) -> None:
        """Return once no request is left that another engine continues."""
        until_s = self._died_s + self._config.relay_s
        while self._moving and (left_s := until_s - time.monotonic()) > 0:
            await asyncio.wait(self._moving.values(), timeout=left_s)
        for one in list(self._client.output_processor.request_states):
            said = f"its replica had to end {self._config.relay_s:g} s after its engine"
            self._end(one, "relay", said)
