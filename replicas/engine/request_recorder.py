"""Records arrival and end of each request.

It keeps numbers; of a prompt's contents only hashes, under a key that lasts as long as the
recording and is stored nowhere.
"""

import hashlib
from collections import deque
from functools import partial
from typing import Any

from replicas.engine.hooks import beside, hook
from replicas.engine.prefixes import prefix_hashes
from replicas.engine.recorder import Recorder
from replicas.engine.request_facts import ran_to_its_end, remotely_decoded

MOST_REQUESTS = 20_000  # kept between two drains
Row = dict[str, Any]


class RequestRecorder(Recorder):
    """Records requests that arrive from now on, once each has ended; hashes are made by owner."""

    def __init__(self, scheduler: Any, *owner: Any) -> None:
        super().__init__(scheduler, *owner)
        self._key = hashlib.blake2b(self.owner.encode(), digest_size=32).digest()
        self._rows: deque[Row] = deque(maxlen=MOST_REQUESTS)
        self._lost, self._fresh = 0, True
        self._open: dict[str, list[str]] = {}  # hashes by id, of requests that came since it began
        around = partial(beside, scheduler.guard, "a request that is captured")
        methods = {"add_request": around(self._came), "_free_request": around(self._ended)}
        self._unhook = hook(scheduler, methods)

    def drain(self) -> dict[str, Any]:
        """Requests that ended since the last call.

        Returns:
            ``requests``: ``arrival_s`` (Unix time), ``input_tokens``, ``output_tokens``,
            ``max_tokens``, ``priority``, ``cancelled`` and ``prefix`` of each; ``lost``: how many
            ended before them and were dropped; ``fresh``: whether the recording began since the
            last call.
        """
        super().drain()
        rows, self._rows = list(self._rows), deque(maxlen=MOST_REQUESTS)
        lost, self._lost = self._lost, 0
        fresh, self._fresh = self._fresh, False
        return {"requests": rows, "lost": lost, "fresh": fresh}

    def _came(self, request: Any) -> None:
        # More input of a session is no request. If only the prompt is computed here, the engine
        # that decodes records the request.
        known = request.request_id in self._scheduler.requests
        if self._is_asked() and not known and not remotely_decoded(request):
            self._open[request.request_id] = prefix_hashes(
                request.prompt_token_ids, self._key, *_beside(request)
            )

    def _ended(self, request: Any) -> None:
        if (prefix := self._open.pop(request.request_id, None)) is None:
            return
        self._lost += len(self._rows) == MOST_REQUESTS
        self._rows.append(
            {
                "arrival_s": round(request.arrival_time, 4),
                "input_tokens": request.num_prompt_tokens,
                "output_tokens": request.num_output_tokens,
                "max_tokens": request.max_tokens,
                "priority": request.priority,
                "cancelled": not ran_to_its_end(request),
                "prefix": prefix,
            }
        )


def _beside(request: Any) -> tuple[str, list[tuple[int, str]]]:
    """What else separates prompts in vLLM's prefix cache: adapter and salt, images by place."""
    adapter = "" if request.lora_request is None else request.lora_request.lora_name
    images = [(one.mm_position.offset, one.identifier) for one in request.mm_features]
    return repr((adapter, request.cache_salt or "")), images
