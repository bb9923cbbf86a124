"""Makes the engine's requests from those of a workload."""

from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.request import Request as EngineRequest

from controller.classes import ServiceClasses
from controller.records import to_wire
from controller.request_slo import KEY, of_class
from replicas.engine.prefixes import PREFIX_TOKENS
from simulator.virtual.plan import Plan
from simulator.virtual.scheduler import END, TOKEN
from simulator.workloads.requests import Request


class RequestMaker:
    """Makes the engine's requests: prompts differ, except for shared prefixes.

    A turn's prompt begins with the prompt and the answer of the turn before.
    """

    def __init__(
        self,
        plan: Plan,
        max_model_len: int,
        classes: ServiceClasses | None = None,
    ) -> None:
        known = {} if classes is None else classes.by_name
        self._told = {name: {KEY: to_wire(of_class(one))} for name, one in known.items()}
        self._max_model_len = max_model_len
        self._hasher = None
        self._made = 0
        self._prefixes: dict[str, int] = {}
        self._conversations: dict[int, int] = {}
        if plan.engine.enable_prefix_caching:
            init_none_hash(sha256)
            self._hasher = get_request_block_hasher(plan.engine.block_size, sha256)

    def __call__(
        self,
        number: int,
        request: Request,
        arrival_s: float,
        transfer: dict[str, Any] | None = None,
    ) -> EngineRequest:
        """Request ``number`` of the workload, for the engine at ``arrival_s``.

        Args:
            transfer: its ``kv_transfer_params``; None: it is served here completely.
        """
        length, own = request.input_tokens, self._made
        if request.conversation is not None:  # its model generates only this token
            own = self._conversations.setdefault(request.conversation, self._made)
        prompt = [TOKEN] * length
        if not request.prefix:
            prompt[0] = 2 + own  # from here on block hashes differ
        for k, name in enumerate(request.prefix):  # equal names begin alike
            prompt[k * PREFIX_TOKENS] = -1 - self._prefixes.setdefault(name, len(self._prefixes))
        if 0 < len(request.prefix) * PREFIX_TOKENS < length:
            prompt[len(request.prefix) * PREFIX_TOKENS] = 2 + own
        self._made += 1
        allowed = self._max_model_len - length
        if request.max_tokens is not None:
            allowed = min(request.max_tokens, allowed)
        extra = self._told.get(request.service) if request.service else None
        if transfer is not None:
            extra = {**(extra or {}), "kv_transfer_params": transfer}
        return EngineRequest(
            str(number),
            prompt,
            SamplingParams(
                max_tokens=max(allowed, 1),
                stop_token_ids=[END],
                extra_args=extra,
            ),
            None,
            arrival_time=arrival_s,
            priority=request.priority,
            block_hasher=self._hasher,
        )
