"""The slack of each request that decodes: columns that a step moves as a whole.

Token i of a request is due at t0 + i D (``controller.models.pace``). Every step gives each of them
one token, so all dues move on by D at once: a column holds t0 + (tokens so far - 1) D less what the
steps so far have added, and one number has what they add.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from controller.config import Sla
from controller.models.arrays import Floats
from controller.models.pace import DeadlineSlack

FIRST_ROOM = 256
# A request that a step left out (by a connector, or a budget of somebody else's) is out of place
# until it is looked at again, and one that came back on another way than most.
CHECK_STEPS = 64


class Pacing:
    """Paced delivery of one engine.

    Args:
        itl_s: D, seconds.
        ttft_s: the time to first token that is agreed; 0: none is.
    """

    def __init__(self, itl_s: float, ttft_s: float) -> None:
        self._itl_s, self._ttft_s = itl_s, ttft_s
        self._begin_s: dict[str, float] = {}  # t0 of each that had its first token, by id
        self._index: dict[str, int] = {}
        self._ids: list[str] = []  # by index
        self._due_s: Floats = np.zeros(FIRST_ROOM)  # of the last token, at step 0
        self._born: Floats = np.zeros(FIRST_ROOM)  # generated tokens, at step 0
        self._steps = 0
        self._ended: list[str] = []  # with the step that is counted next

    def same_slo(self, other: "Pacing") -> bool:
        """Whether both go by the same SLO."""
        return (self._itl_s, self._ttft_s) == (other._itl_s, other._ttft_s)

    def first_token(self, req_id: str, waited_s: float, now_s: float) -> None:
        """A request has its first token, so long after it came; ``now_s`` on the engine's clock."""
        # A wall clock that was set back would make slack of any length.
        self._begin_s[req_id] = now_s + min(max(self._ttft_s - waited_s, 0.0), self._ttft_s)
        self.enter(req_id, 1)

    def enter(self, req_id: str, generated: int) -> None:
        """A request decodes, for the first time or again, with so many tokens so far."""
        begin_s = self._begin_s.get(req_id)
        if begin_s is None:
            return
        index = self._index.get(req_id)
        if index is None:
            index = self._index[req_id] = len(self._ids)
            self._ids.append(req_id)
            if index == len(self._due_s):
                self._due_s = np.concatenate([self._due_s, np.zeros(index)])
                self._born = np.concatenate([self._born, np.zeros(index)])
        self._born[index] = generated - self._steps
        self._due_s[index] = begin_s + (generated - 1 - self._steps) * self._itl_s

    def leave(self, req_id: str) -> None:
        """A request decodes no more: it lost its KV blocks."""
        index = self._index.pop(req_id, None)
        if index is None:
            return
        last = self._ids.pop()
        if last != req_id:  # the last one takes its place
            self._ids[index], self._index[last] = last, index
            end = len(self._ids)
            self._due_s[index], self._born[index] = self._due_s[end], self._born[end]

    def gone(self, req_id: str, *, ended: bool = False) -> None:
        """A request is no longer here.

        Args:
            ended: with a token of the step that is counted next, which may be late as any other.
        """
        if ended:
            self._ended.append(req_id)
            return
        self.leave(req_id)
        self._begin_s.pop(req_id, None)

    def stepped(self, now_s: float) -> int:
        """A step has given each one token; how many of these were late."""
        self._steps += 1
        due_s = self._due_s[: len(self._ids)]
        late = int(np.count_nonzero(due_s < now_s - self._steps * self._itl_s - 1e-9))
        for req_id in self._ended:
            self.gone(req_id)
        self._ended.clear()
        return late

    def check(self, running: Iterable[Any], *, always: bool = False) -> None:
        """Now and then, or after every step, take who decodes, and the tokens, as vLLM has them.

        Those that were preempted with their first token under way, or for new weights, get back
        their place so; who waits for its client, or for its turn, has none.
        """
        if not always and self._steps % CHECK_STEPS:
            return
        decode = {
            r.request_id: len(r._output_token_ids)
            for r in running
            if r.num_computed_tokens >= r.num_tokens - 1
        }
        for req_id in [one for one in self._ids if one not in decode]:
            self.leave(req_id)
        for req_id, generated in decode.items():
            self.enter(req_id, generated)

    def slack(self, now_s: float, ahead: int, waiting_s: float = 0.0) -> DeadlineSlack:
        """Slack of the decoding requests when the next step begins.

        Args:
            now_s: when that is.
            ahead: steps that were scheduled, and whose tokens are not back yet.
            waiting_s: the longest wait for a first token (``DeadlineSlack``).
        """
        n, steps = len(self._ids), self._steps + ahead
        slack_s = self._due_s[:n] + (steps * self._itl_s - now_s)
        return DeadlineSlack(slack_s, self._born[:n] + steps, waiting_s)


def pacing_of(sla: Sla, before: Pacing | None) -> Pacing | None:
    """The columns where delivery is paced, else None.

    Args:
        before: those by the last configuration; kept where the same is due.
    """
    if sla.delivery != "paced" or sla.itl_s is None:
        return None
    new = Pacing(sla.itl_s, (sla.ttft_ms or 0.0) / 1000)
    return before if before is not None and before.same_slo(new) else new
