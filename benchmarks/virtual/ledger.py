"""The replay's books: who came, who is in the batch, what each was sent and when."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.virtual.trace import Outcome, Stay
from benchmarks.workloads.requests import Request
from controller.errors import BrimfulError


class ReplayError(BrimfulError):
    """The replay broke a law of conservation: a fault of the bench or of vLLM, not of the input."""


@dataclass(slots=True)
class _Live:
    """A request that was let in and is not finished."""

    number: int
    request: Request
    tokens: int = 0
    scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float = 0.0
    in_batch_since_s: float | None = None
    preemptions: int = 0

    def outcome(self, finished_s: float | None) -> Outcome:
        return Outcome(
            self.request,
            False,
            self.tokens,
            self.scheduled_s,
            self.first_token_s,
            finished_s,
            self.preemptions,
        )


class Books:
    """Kept by what the engine says it did; request ids are the requests' numbers.

    Attributes:
        gaps: (length_s, end_s, number) of each gap between two tokens of a request.
        finished: how many were served to their end.
    """

    def __init__(self, requests: Sequence[Request]) -> None:
        self._outcomes = [Outcome(request, refused=True) for request in requests]
        self._live: dict[str, _Live] = {}
        self._stays: list[Stay] = []
        self.gaps: list[tuple[float, float, int]] = []
        self.finished = 0

    def __len__(self) -> int:
        """Requests that came in and are not finished."""
        return len(self._live)

    def come(self, number: int, request: Request) -> None:
        """A request was let in."""
        self._live[str(number)] = _Live(number, request)

    def enter_batch(self, ids: Iterable[str], now_s: float) -> None:
        """Requests were scheduled, for the first time or after a preemption."""
        for req_id in ids:
            live = self._live[req_id]
            live.in_batch_since_s = now_s
            if live.scheduled_s is None:
                live.scheduled_s = now_s

    def preempt(self, req_id: str, now_s: float) -> None:
        """A request lost its KV blocks and its place in the batch."""
        live = self._live[req_id]
        live.preemptions += 1
        self._leave_batch(live, now_s)

    def left(self, req_id: str) -> int:
        """How many tokens a request has still to say."""
        live = self._live[req_id]
        return live.request.output_tokens - live.tokens

    def token(self, req_id: str, tokens: int, ends: bool, now_s: float) -> None:
        """A request was sent ``tokens`` more.

        Raises:
            ReplayError: it ended with more or fewer tokens than it asked for.
        """
        live = self._live[req_id]
        if live.tokens:
            self.gaps.append((now_s - live.last_token_s, now_s, live.number))
        else:
            live.first_token_s = now_s
        live.tokens += tokens
        live.last_token_s = now_s
        if ends:
            self._finish(req_id, live, now_s)

    def _finish(self, req_id: str, live: _Live, now_s: float) -> None:
        if live.tokens != live.request.output_tokens:
            raise ReplayError(
                f"request {req_id} got {live.tokens} of {live.request.output_tokens} tokens"
            )
        del self._live[req_id]
        self._leave_batch(live, now_s)
        self._outcomes[live.number] = live.outcome(now_s)
        self.finished += 1

    def _leave_batch(self, live: _Live, now_s: float) -> None:
        since_s, live.in_batch_since_s = live.in_batch_since_s, None
        if since_s is not None and since_s < now_s:  # else its first step had not begun
            self._stays.append(Stay(live.number, since_s, now_s, now_s))

    def close(self, now_s: float) -> tuple[tuple[Outcome, ...], tuple[Stay, ...]]:
        """All outcomes and stays, those that are cut short by the end included."""
        for live in self._live.values():
            self._leave_batch(live, now_s)
            self._outcomes[live.number] = live.outcome(None)
        return tuple(self._outcomes), tuple(self._stays)
