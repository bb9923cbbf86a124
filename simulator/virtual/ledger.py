"""The replay's token ledger: requests, their state, and the times of their tokens."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controller.errors import BrimfulError
from simulator.virtual.trace import Gap, Outcome
from simulator.workloads.requests import Request


class ReplayError(BrimfulError):
    """The replay broke a conservation law: a fault of the bench or of vLLM, not of the input."""


@dataclass(slots=True)
class _Account:
    """A request that was added and is not finished."""

    number: int
    outcome: Outcome
    last_token_s: float = 0.0


class Ledger:
    """Records what the engine reports; request ids are the requests' numbers.

    Attributes:
        gaps: (length_s, end_s, number) of each gap between two deliveries of a request.
        finished: number of requests served to their end.
    """

    def __init__(self) -> None:
        self._outcomes: dict[int, Outcome] = {}
        self._accounts: dict[str, _Account] = {}
        self.gaps: list[Gap] = []
        self.finished = 0

    def __len__(self) -> int:
        """Requests that were added and are not finished."""
        return len(self._accounts)

    def __contains__(self, req_id: str) -> bool:
        """Whether a request was added and is not finished."""
        return req_id in self._accounts

    def refuse(self, number: int, request: Request) -> None:
        """Count a request that can never fit."""
        self._outcomes[number] = Outcome(request, refused=True)

    def come(self, number: int, request: Request) -> None:
        """Add a request."""
        self._outcomes[number] = outcome = Outcome(request)
        self._accounts[str(number)] = _Account(number, outcome)

    def enter_batch(self, ids: Iterable[str], now_s: float) -> None:
        """Requests were scheduled, for the first time or after a preemption."""
        for req_id in ids:
            outcome = self._accounts[req_id].outcome
            if outcome.scheduled_s is None:
                outcome.scheduled_s = now_s

    def preempt(self, req_id: str) -> None:
        """A request lost its KV blocks and its place in the batch."""
        self._accounts[req_id].outcome.preemptions += 1

    def remaining(self, req_id: str) -> int:
        """Tokens that a request still has to generate."""
        outcome = self._accounts[req_id].outcome
        return outcome.request.output_tokens - outcome.tokens

    def token(self, req_id: str, tokens: int, ends: bool, now_s: float) -> Request:
        """Count ``tokens`` more tokens of a request; returns the request.

        Raises:
            ReplayError: it ended with more or fewer tokens than it asked for.
        """
        account = self._accounts[req_id]
        outcome = account.outcome
        if outcome.tokens:
            self.gaps.append((now_s - account.last_token_s, now_s, account.number))
        else:
            outcome.first_token_s = now_s
        outcome.tokens += tokens
        account.last_token_s = now_s
        if ends:
            self._finish(req_id, outcome, now_s)
        return outcome.request

    def _finish(self, req_id: str, outcome: Outcome, now_s: float) -> None:
        if outcome.tokens != outcome.request.output_tokens:
            raise ReplayError(
                f"request {req_id} got {outcome.tokens} of {outcome.request.output_tokens} tokens"
            )
        del self._accounts[req_id]
        outcome.finished_s = now_s
        self.finished += 1

    def close(self, computed: Mapping[str, int]) -> dict[int, Outcome]:
        """Outcomes by number, unfinished requests included.

        Args:
            computed: tokens that the engine has computed, by request id.
        """
        for req_id, account in self._accounts.items():
            account.outcome.computed_tokens = computed.get(req_id, 0)
        return dict(sorted(self._outcomes.items()))
